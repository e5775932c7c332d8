package app

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/pg"
)

// parkedPath is the prefix of the routes for the parked records of a service. The gateway forwards
// the requests of operators to these routes.
const parkedPath = "/admin/v1/parked-records"

const (
	// listedParked is the number of parked records in a response.
	listedParked = 100
	// replayTimeout limits one replay. The gateway and the console wait longer.
	replayTimeout = 15 * time.Second
	// timestampFormat is the format of the times in all APIs.
	timestampFormat = "2006-01-02T15:04:05.000Z07:00"
)

// parkedRecords serves the parked records of a consumer.
type parkedRecords struct{ consumer *inbox.Consumer }

// serveParked adds the routes of the parked records to the handler of a service that reads topics.
func (rt *Runtime) serveParked(handler http.Handler) http.Handler {
	router := httpserver.NewRouter(rt.Telemetry)
	records := func(serve func(parkedRecords, http.ResponseWriter, *http.Request) error) http.HandlerFunc {
		return httpserver.Handle(func(w http.ResponseWriter, r *http.Request) error {
			if rt.inbox == nil {
				return httpserver.NoRoute()
			}
			return serve(parkedRecords{rt.inbox}, w, r)
		})
	}
	router.Route(parkedPath, func(r chi.Router) {
		r.Use(rt.Keys.RequireOperator)
		r.Get("/", records(parkedRecords.list))
		r.Post("/{event_id}/replay", records(parkedRecords.replay))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == parkedPath || strings.HasPrefix(r.URL.Path, parkedPath+"/") {
			router.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

type parkedView struct {
	Topic    string    `json:"topic"`
	EventID  uuid.UUID `json:"event_id"`
	Key      string    `json:"key"`
	Error    string    `json:"error"`
	ParkedAt string    `json:"parked_at"`
}

// list handles GET /admin/v1/parked-records.
func (p parkedRecords) list(w http.ResponseWriter, r *http.Request) error {
	found, err := p.consumer.Parked(r.Context(), listedParked+1)
	if err != nil {
		return err
	}
	body := struct {
		Data    []parkedView `json:"data"`
		HasMore bool         `json:"has_more"`
	}{Data: []parkedView{}, HasMore: len(found) > listedParked}
	for _, record := range found[:min(len(found), listedParked)] {
		body.Data = append(body.Data, parkedView{Topic: record.Topic, EventID: record.EventID, Key: record.Key,
			Error: record.Error, ParkedAt: record.ParkedAt.Format(timestampFormat)})
	}
	return httpserver.WriteJSON(w, http.StatusOK, body)
}

// replay handles POST /admin/v1/parked-records/{event_id}/replay. It applies the record again, with
// the other parked records of its key. If the client disconnects, the replay ends between two
// records.
func (p parkedRecords) replay(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "event_id", "parked record")
	if err != nil {
		return err
	}
	var body struct {
		Topic string `json:"topic"`
	}
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	if body.Topic == "" {
		return apierr.Validation("topic", "is missing: send the topic of the parked record.")
	}
	ctx, cancel := context.WithTimeout(r.Context(), replayTimeout)
	defer cancel()
	applied, parked, err := p.consumer.ReplayRecord(ctx, body.Topic, id)
	if errors.Is(err, pg.ErrNotFound) {
		return apierr.New(http.StatusNotFound, "not_found", "No such parked record.")
	}
	if errors.Is(err, inbox.ErrReplayRuns) {
		return apierr.Conflict("replay_runs",
			"The service already replays a parked record. Repeat the request when that replay has ended.")
	}
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		EventID uuid.UUID `json:"event_id"`
		Topic   string    `json:"topic"`
		Applied int       `json:"applied"`
		Parked  int       `json:"parked"`
	}{id, body.Topic, applied, parked})
}
