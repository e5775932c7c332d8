package httpapi

import (
	"fmt"
	"net/http"
	"path"
	"time"

	"github.com/go-chi/chi/v5"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/services/dialer/internal/recordings"
)

// Recordings serves recordings from a local directory. The zero value serves none.
type Recordings struct {
	// Enabled is true if the service can record calls.
	Enabled bool
	Files   *recordings.Directory
	Links   *recordingstore.Links
}

// downloadTimeout limits a download. The largest recording has 53 MB.
const downloadTimeout = time.Hour

// readRecording handles GET /recordings/… for a client with a valid link. It responds with the
// file, or with the requested ranges of the file. Without a valid link, it always responds 404.
func (a *API) readRecording(w http.ResponseWriter, r *http.Request) error {
	key := chi.URLParam(r, "*")
	none := apierr.New(
		http.StatusNotFound,
		"not_found",
		"There is no recording here, or the link has ended. Ask for the call again: each answer has a link that is good "+
			"for an hour.",
	)
	if a.recordings.Files == nil || a.recordings.Links.Check(key, r.URL.Query(), time.Now()) != nil {
		return none
	}
	file, err := a.recordings.Files.Open(key)
	if err != nil {
		return none
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("stat recording: %w", err)
	}
	// The error is ignored. It occurs only in tests, whose response writers have no connection.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(downloadTimeout))
	header := w.Header()
	header.Set("Content-Type", recordingstore.ContentType)
	header.Set("Content-Disposition", `attachment; filename="`+path.Base(key)+`"`)
	header.Set("Cache-Control", "private, no-store")
	content := &contentWriter{ResponseWriter: w}
	http.ServeContent(content, r, "", info.ModTime(), file)
	return content.refusal()
}

// contentWriter passes the responses of http.ServeContent on to the client, except errors. Instead
// of an error, the client receives the error body of docs/reference/api/README.md#error-responses.
// A 304 is not an error and has no body.
type contentWriter struct {
	http.ResponseWriter
	errorStatus int // status code of the error, or 0
}

func (w *contentWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.errorStatus = status
		w.Header().Del("Content-Disposition")
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *contentWriter) Write(p []byte) (int, error) {
	if w.errorStatus != 0 {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is needed by http.ResponseController to find the connection.
func (w *contentWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *contentWriter) refusal() error {
	switch w.errorStatus {
	case 0:
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		return apierr.New(w.errorStatus, "range_not_satisfiable",
			"Range names no part of this recording; Content-Range says how long it is.")
	case http.StatusPreconditionFailed:
		return apierr.New(w.errorStatus, "precondition_failed",
			"The recording does not meet the condition of If-Match or If-Unmodified-Since.")
	}
	return fmt.Errorf("serve recording: status %d", w.errorStatus)
}
