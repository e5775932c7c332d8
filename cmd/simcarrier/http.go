package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
)

// logEntry is one item of GET /log (cmd/simcarrier/README.md).
type logEntry struct {
	Seq    int64             `json:"seq"`
	At     openapi.Timestamp `json:"at"`
	Kind   string            `json:"kind"`
	CallID string            `json:"call_id"`
	From   string            `json:"from"`
	To     string            `json:"to"`
}

const maxEvents = 1000

// maxWait is the longest wait of one long poll.
const maxWait = 30 * time.Second

// Handler serves the simulated network over HTTP: /originate, /hangup, /answer, /inbound,
// /calls/{id}, /log, /events, /faults, /healthz.
func (x *Network) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /originate", x.postOriginate)
	mux.HandleFunc("POST /hangup", x.postHangup)
	mux.HandleFunc("POST /answer", x.postAnswer)
	mux.HandleFunc("POST /inbound", x.postInbound)
	mux.HandleFunc("GET /calls/{id}", x.getCall)
	mux.HandleFunc("GET /log", x.getLog)
	mux.HandleFunc("GET /events", x.getEvents)
	mux.HandleFunc("POST /faults", x.postFault)
	mux.HandleFunc("GET /faults", x.getFaults)
	mux.HandleFunc("DELETE /faults", x.deleteFaults)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	return mux
}

// requireToken returns a handler that responds 401 to a request without the bearer token, except
// for /healthz. An empty token permits every request.
func requireToken(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want := sha256.Sum256([]byte("Bearer " + token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if r.URL.Path != "/healthz" && subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "the header Authorization must contain the token of SIMCARRIER_TOKEN")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (x *Network) postOriginate(w http.ResponseWriter, r *http.Request) {
	var body struct {
		CallID   uuid.UUID  `json:"call_id"`
		From     string     `json:"from"`
		To       string     `json:"to"`
		DialedAt *time.Time `json:"dialed_at"`
	}
	if !decode(w, r, &body) {
		return
	}
	if body.CallID == uuid.Nil || body.To == "" {
		refuse(w, http.StatusBadRequest, "call_id and to are needed")
		return
	}
	rule := x.applyRule(body.To)
	if rule.applyBeforeDial(w, r) {
		return
	}
	if err := x.dial(body.CallID.String(), body.From, body.To, body.DialedAt, rule.Fault); err != nil {
		fault(w, err)
		return
	}
	if rule.applyAfterDial(r) {
		return
	}
	answer(w, http.StatusAccepted, map[string]string{"call_id": body.CallID.String()})
}

func (x *Network) postHangup(w http.ResponseWriter, r *http.Request) {
	var body struct {
		CallID uuid.UUID `json:"call_id"`
		Cause  string    `json:"cause"`
		By     string    `json:"by"`
	}
	if !decode(w, r, &body) {
		return
	}
	if body.By == "" {
		body.By = "dialer"
	}
	if body.By != "dialer" && body.By != "callee" && body.By != "caller" {
		refuse(w, http.StatusBadRequest, "by is dialer, callee or caller")
		return
	}
	was, call, known, err := x.Hangup(body.CallID.String(), body.Cause, body.By)
	switch {
	case err != nil:
		fault(w, err)
	case !known:
		refuse(w, http.StatusNotFound, "unknown call")
	default:
		answer(w, http.StatusOK, struct {
			Was string `json:"was"`
			Call
		}{was, call})
	}
}

func (x *Network) postAnswer(w http.ResponseWriter, r *http.Request) {
	var body struct {
		CallID uuid.UUID `json:"call_id"`
	}
	if !decode(w, r, &body) {
		return
	}
	call, known, err := x.Answer(body.CallID.String())
	switch {
	case err != nil:
		fault(w, err)
	case !known:
		refuse(w, http.StatusNotFound, "unknown call")
	default:
		answer(w, http.StatusOK, call)
	}
}

func (x *Network) postInbound(w http.ResponseWriter, r *http.Request) {
	var body struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	if !decode(w, r, &body) {
		return
	}
	if body.To == "" {
		refuse(w, http.StatusBadRequest, "to is needed")
		return
	}
	callID, err := uuid.NewV7()
	if err != nil {
		fault(w, err)
		return
	}
	if err := x.Inbound(callID.String(), body.From, body.To); err != nil {
		fault(w, err)
		return
	}
	answer(w, http.StatusAccepted, map[string]string{"call_id": callID.String()})
}

func (x *Network) getCall(w http.ResponseWriter, r *http.Request) {
	call, known := x.Find(r.PathValue("id"))
	if !known {
		refuse(w, http.StatusNotFound, "unknown call")
		return
	}
	answer(w, http.StatusOK, call)
}

func (x *Network) getLog(w http.ResponseWriter, r *http.Request) {
	after, ok := number(w, r, "after", 0)
	if !ok {
		return
	}
	data := []logEntry{}
	err := x.journal.Read(after, func(e Entry) bool {
		if e.Kind != KindUtterance && !e.Echo {
			data = append(data, logEntry{e.Seq, openapi.TimestampOf(e.At), e.Kind, e.CallID, e.From, e.To})
		}
		return true
	})
	if err != nil {
		fault(w, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"data": data})
}

// getEvents returns the events whose number is greater than the query parameter `after`. If there
// are none, it waits up to `wait` milliseconds. A repeated request gets the same response, even
// after a restart.
func (x *Network) getEvents(w http.ResponseWriter, r *http.Request) {
	after, ok := number(w, r, "after", 0)
	if !ok {
		return
	}
	wait, ok := number(w, r, "wait", 0)
	if !ok {
		return
	}
	timer := time.NewTimer(min(time.Duration(wait)*time.Millisecond, maxWait))
	defer timer.Stop()
	data, seen, waiting := []Entry{}, after, true
	for waiting && len(data) == 0 { // an event that a fault hides does not end the wait
		select {
		case <-x.journal.Grown(seen):
		case <-timer.C:
			waiting = false
		case <-r.Context().Done():
			return
		}
		err := x.journal.Read(seen, func(e Entry) bool {
			if seen = e.Seq; !e.Unreported {
				e.Echo = false
				data = append(data, e)
			}
			return len(data) < maxEvents
		})
		if err != nil {
			fault(w, err)
			return
		}
	}
	answer(w, http.StatusOK, map[string]any{"feed": x.journal.Feed(), "data": data})
}

func number(w http.ResponseWriter, r *http.Request, name string, unset int64) (int64, bool) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return unset, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		refuse(w, http.StatusBadRequest, name+" is a whole number")
		return 0, false
	}
	return n, true
}

func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(into)
	if err != nil {
		refuse(w, http.StatusBadRequest, "the body is no such JSON object: "+err.Error())
	}
	return err == nil
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]string{"error": message})
}

func fault(w http.ResponseWriter, err error) {
	slog.Error("request failed", "error", err)
	refuse(w, http.StatusInternalServerError, "the journal cannot be written or read")
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil && !errors.Is(err, http.ErrHandlerTimeout) {
		slog.Debug("client disconnected before the response", "error", err)
	}
}
