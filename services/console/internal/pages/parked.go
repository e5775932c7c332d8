package pages

import (
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) parkedRoutes() []route {
	return []route{
		{"GET /operator/parked", showParked},
		{"POST /operator/parked/{event}/replay", replayParked},
	}
}

const (
	parkedPath = "/admin/v1/parked-records"
	parkedPage = "/operator/parked"
)

// parkedRecord is a record of a topic that a service could not apply.
type parkedRecord struct {
	Service  string            `json:"service"`
	Topic    string            `json:"topic"`
	EventID  uuid.UUID         `json:"event_id"`
	Key      string            `json:"key"`
	Error    string            `json:"error"`
	ParkedAt openapi.Timestamp `json:"parked_at"`
}

// Dialog is the id of the record's HTML dialog. It contains the service, because two services can
// park the same event.
func (r parkedRecord) Dialog() string { return r.Service + "-" + r.EventID.String() }

func showParked(v *visit) (view, error) {
	var data struct {
		gateway.Page[parkedRecord]
		Unavailable []string `json:"unavailable"`
	}
	err := concurrently(read(v, &data, parkedPath, nil))
	return view{template: "parked", title: "nav.parked", nav: "parked", data: data}, err
}

// replayParked applies a record again, with the other parked records of its key.
func replayParked(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("event"))
	if err != nil {
		return view{}, errNotFound
	}
	if !v.giveReason() {
		return view{redirect: parkedPage, done: "not_confirmed"}, nil
	}
	replayed, err := gateway.Do[struct {
		Parked int `json:"parked"`
	}](v.r.Context(), v.Session, gateway.Request{Method: http.MethodPost, Path: parkedPath + "/" + id.String() + "/replay",
		Body: map[string]string{"service": v.form("service"), "topic": v.form("topic")}})
	done := "record_replayed"
	switch {
	case gateway.Is(err, "replay_runs"):
		done, err = "replay_runs", nil
	case gateway.Is(err, "not_found"):
		done, err = "not_parked", nil
	case replayed.Parked > 0:
		done = "still_parked"
	}
	return view{redirect: parkedPage, done: done}, err
}
