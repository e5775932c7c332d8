package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/proxy"
)

// parkedRoute is the route of the parked records, at the gateway and at each service.
const parkedRoute = "/admin/v1/parked-records"

// parkedView is a record of a topic that a service could not apply.
type parkedView struct {
	Service  string            `json:"service"`
	Topic    string            `json:"topic"`
	EventID  uuid.UUID         `json:"event_id"`
	Key      string            `json:"key"`
	Error    string            `json:"error"`
	ParkedAt openapi.Timestamp `json:"parked_at"`
}

type parkedPage struct {
	Data    []parkedView `json:"data"`
	HasMore bool         `json:"has_more"`
}

// listParked handles GET /admin/v1/parked-records. It reads the newest parked records of each
// service.
func (a *Admin) listParked(w http.ResponseWriter, r *http.Request) error {
	body := struct {
		parkedPage
		Unavailable []string `json:"unavailable"`
	}{parkedPage{Data: []parkedView{}}, []string{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, owner := range proxy.Owners() {
		all.Go(func() {
			found, err := a.parkedOf(r, owner)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				slog.WarnContext(r.Context(), "parked records not read", "service", owner, "error", err)
				body.Unavailable = append(body.Unavailable, owner)
				return
			}
			body.Data, body.HasMore = append(body.Data, found.Data...), body.HasMore || found.HasMore
		})
	}
	all.Wait()
	slices.Sort(body.Unavailable)
	slices.SortFunc(body.Data, func(a, b parkedView) int {
		return cmp.Or(b.ParkedAt.Compare(a.ParkedAt.Time), cmp.Compare(a.EventID.String(), b.EventID.String()))
	})
	return httpserver.WriteJSON(w, http.StatusOK, body)
}

// parkedTimeout is shorter than the timeout of the console. So if a service does not respond, the
// console still shows the records of the other services.
const parkedTimeout = 5 * time.Second

func (a *Admin) parkedOf(r *http.Request, owner string) (found parkedPage, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), parkedTimeout)
	defer cancel()
	response, err := a.peers.Do(ctx, proxy.OwnerRequest{Owner: owner, Method: http.MethodGet,
		Path: &url.URL{Path: parkedRoute}, Caller: actorOf(r).systemCaller()})
	if err != nil {
		return found, err
	}
	if !response.OK() {
		return found, response.Refusal(owner)
	}
	if err := json.Unmarshal(response.Body, &found); err != nil {
		return found, fmt.Errorf("decode the parked records of %s: %w", owner, err)
	}
	for i := range found.Data {
		found.Data[i].Service = owner
	}
	return found, nil
}

// replayParked handles POST /admin/v1/parked-records/{event_id}/replay. The body names the service
// and the topic of the record. If the client disconnects, the service ends the replay.
func (a *Admin) replayParked(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "event_id", "parked record")
	if err != nil {
		return missing("parked record")
	}
	text, err := httpserver.ReadBody(r)
	if err != nil {
		return err
	}
	var body struct {
		Service string `json:"service"`
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	if !slices.Contains(proxy.Owners(), body.Service) {
		return apierr.Validation("service", "must be the name of a service that reads topics, for example calls.")
	}
	path := &url.URL{Path: parkedRoute + "/" + id.String() + "/replay"}
	match := proxy.Match{Route: proxy.Route{Template: template(r), Owner: body.Service}, Path: path}
	request := proxy.OwnerRequest{Owner: body.Service, Method: r.Method, Path: path, Header: r.Header, Body: text,
		Caller: actorOf(r).systemCaller()}
	response, err := a.auditChange(r, match, request, func() (response proxy.OwnerResponse, err error) {
		response, err = a.peers.Do(r.Context(), request)
		if err == nil && response.OK() {
			err = nameService(&response, body.Service)
		}
		return response, err
	})
	if err != nil {
		return err
	}
	response.LogCode(r.Context())
	writeResponse(w, response)
	return nil
}

// nameService adds the name of the service to the response of a replay, because two services can
// park the same event.
func nameService(response *proxy.OwnerResponse, service string) error {
	var body struct {
		Service string    `json:"service"`
		EventID uuid.UUID `json:"event_id"`
		Topic   string    `json:"topic"`
		Applied int       `json:"applied"`
		Parked  int       `json:"parked"`
	}
	err := json.Unmarshal(response.Body, &body)
	body.Service = service
	if err == nil {
		response.Body, err = json.Marshal(body)
	}
	if err != nil {
		return fmt.Errorf("name the service %s in the response of a replay: %w", service, err)
	}
	return nil
}

// systemCaller returns the identity that the gateway signs for requests that belong to no
// workspace.
func (act actor) systemCaller() serviceauth.Caller {
	return serviceauth.Caller{RequestID: act.requestID, Access: serviceauth.Write, Operator: act.operator,
		PersonName: act.personName()}
}
