package httpapi

import (
	"fmt"
	"net/http"
	"path"
	"time"

	"github.com/go-chi/chi/v5"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/recording"
	"ringfence.dev/services/dialer/internal/storing"
)

// Recordings are those in a local directory; nothing, where there is none.
type Recordings struct {
	Files *storing.Directory
	Links *recording.Links
}

// fetching bounds the download of a recording: the longest is 53 MB.
const fetching = time.Hour

// readRecording answers GET /recordings/…, for whoever has a link that is good: the whole file, or the ranges asked for. Any other is told nothing.
func (a *API) readRecording(w http.ResponseWriter, r *http.Request) error {
	key := chi.URLParam(r, "*")
	none := apierr.New(http.StatusNotFound, "not_found", "There is no recording here, or the link has ended. Ask for the call again: each answer has a link that is good for an hour.")
	if a.tapes.Files == nil || a.tapes.Links.Check(key, r.URL.Query(), time.Now()) != nil {
		return none
	}
	file, err := a.tapes.Files.Open(key)
	if err != nil {
		return none
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("look at a recording: %w", err)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(fetching)) // a writer that cannot has no connection
	header := w.Header()
	header.Set("Content-Type", recording.ContentType)
	header.Set("Content-Disposition", `attachment; filename="`+path.Base(key)+`"`)
	header.Set("Cache-Control", "private, no-store")
	http.ServeContent(w, r, "", info.ModTime(), file)
	return nil
}
