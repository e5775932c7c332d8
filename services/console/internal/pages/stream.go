package pages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/console/internal/gateway"
)

const (
	streamWriteTimeout = 10 * time.Second
	heartbeatInterval  = 15 * time.Second
)

// stream sends the ids and types of the workspace's events to a browser. The page then reads the
// changed data with the session of the person.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	telemetry.Route(r.Context(), "GET /w/{workspace}/stream")
	s.serveStream(w, r, func(session *gateway.Session) (*gateway.Subscription, error) {
		return s.Hub.Subscribe(r.Context(), session, r.URL.Query().Get("last_event_id"))
	})
}

// turns sends the transcript turns of calls in progress to a browser. The gateway refuses the
// stream with 422 if the person may not read transcripts.
func (s *Server) turns(w http.ResponseWriter, r *http.Request) {
	telemetry.Route(r.Context(), "GET /w/{workspace}/turns")
	s.serveStream(w, r, func(session *gateway.Session) (*gateway.Subscription, error) {
		return s.Hub.SubscribeTurns(r.Context(), session)
	})
}

func (s *Server) serveStream(
	w http.ResponseWriter, r *http.Request, subscribe func(*gateway.Session) (*gateway.Subscription, error),
) {
	id, err := uuid.Parse(r.PathValue("workspace"))
	session := s.session(r)
	if err != nil || session.Token == "" {
		http.Error(w, "", http.StatusUnauthorized)
		return
	}
	session.Workspace, session.Background, session.Reason = id, true, s.cookies.reasonFor(r, session.Token, id)
	sub, err := subscribe(session)
	if err != nil {
		status := http.StatusServiceUnavailable
		if refused := gateway.AsError(err); refused != nil && refused.Status != 0 {
			status = refused.Status
		}
		http.Error(w, "", status)
		return
	}
	defer sub.Close()
	telemetry.Stream(r.Context())
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	writeStream(w, r, sub)
}

func writeStream(w http.ResponseWriter, r *http.Request, sub *gateway.Subscription) {
	control := http.NewResponseController(w)
	// The error is ignored: the ResponseWriter of a test does not support deadlines.
	_ = control.SetReadDeadline(time.Time{})
	send := func(text string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
		_, err := fmt.Fprint(w, text)
		return err == nil && control.Flush() == nil
	}
	if !send(": open\n\n") {
		return
	}
	beat := time.NewTicker(heartbeatInterval)
	defer beat.Stop()
	closing := httpserver.Closing(r.Context())
	for {
		select {
		case <-closing:
			return
		case <-beat.C:
			if !send(": beat\n\n") {
				return
			}
		case event, open := <-sub.C:
			if !open || !send(message(event)) {
				return
			}
		}
	}
}

func message(e gateway.Event) string {
	text, err := json.Marshal(e)
	if err != nil {
		return ": " + err.Error() + "\n\n"
	}
	name := "change"
	if e.Reset {
		name = "reset"
	}
	id := ""
	if e.ID != "" {
		id = "id: " + e.ID + "\n"
	}
	return fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, name, text)
}
