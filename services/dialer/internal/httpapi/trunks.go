package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

// trunkView is the response about a trunk. It shows whether the trunk has a password, but not the
// password.
type trunkView struct {
	ID             uuid.UUID             `json:"id"`
	Name           string                `json:"name"`
	Status         trunks.Status         `json:"status"`
	Host           string                `json:"host"`
	Port           uint16                `json:"port"`
	Transport      trunks.Transport      `json:"transport"`
	OutboundProxy  *string               `json:"outbound_proxy"`
	CACertificates *string               `json:"ca_certificates"`
	Username       *string               `json:"username"`
	HasPassword    bool                  `json:"has_password"`
	Register       bool                  `json:"register"`
	CallerIDs      []string              `json:"caller_ids"`
	CallerIDHeader trunks.CallerIDHeader `json:"caller_id_header"`
	NumberFormat   trunks.NumberFormat   `json:"number_format"`
	NumberPrefix   *string               `json:"number_prefix"`
	Codecs         []string              `json:"codecs"`
	SRTP           trunks.SRTP           `json:"srtp"`
	SessionSeconds int32                 `json:"session_seconds"`
	Channels       int32                 `json:"channels"`
	CallsPerSecond int32                 `json:"calls_per_second"`
	Priority       int32                 `json:"priority"`
	InboundSources []string              `json:"inbound_sources"`
	MediaTimeout   int32                 `json:"media_timeout_seconds"`
	Trace          bool                  `json:"trace"`
	CreatedAt      openapi.Timestamp     `json:"created_at"`
	trunkState
}

func viewTrunk(t trunks.Trunk) trunkView {
	return trunkView{
		ID: t.TrunkID, Name: t.Name, Status: t.Status, Host: t.Host, Port: t.SIPPort(),
		Transport: t.Transport, OutboundProxy: nilIfEmpty(t.OutboundProxy),
		CACertificates: nilIfEmpty(
			t.CACertificates,
		), Username: nilIfEmpty(t.Username), HasPassword: t.Sealed != nil || t.Password != "", Register: t.Register,
		CallerIDs: t.CallerIDs, CallerIDHeader: t.CallerIDHeader, NumberFormat: t.NumberFormat,
		NumberPrefix: nilIfEmpty(t.NumberPrefix), Codecs: t.Codecs, SRTP: t.SRTP,
		SessionSeconds: t.SessionSeconds, Channels: t.Channels, CallsPerSecond: t.CallsPerSecond, Priority: t.Priority, InboundSources: t.InboundSources,
		MediaTimeout: t.MediaTimeoutSeconds, Trace: t.Trace,
		CreatedAt: openapi.TimestampOf(page.TimeOf(t.TrunkID)),
	}
}

func nilIfEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// addTrunk handles POST /admin/v1/trunks. It responds 201. From then on, calls can use the trunk.
func (a *API) addTrunk(w http.ResponseWriter, r *http.Request) error {
	var body map[string]json.RawMessage
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	added := trunks.New(id)
	if err := added.Change(body); err != nil {
		return err
	}
	if err := a.trunks.Add(r.Context(), added); err != nil {
		return refusedTrunk(err, added.Name)
	}
	return a.writeTrunk(w, r, http.StatusCreated, added)
}

// listTrunks handles GET /admin/v1/trunks. It lists the newest trunk first.
func (a *API) listTrunks(w http.ResponseWriter, r *http.Request) error {
	query, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	if query.After != uuid.Nil {
		if _, err := a.trunks.Find(r.Context(), query.After); errors.Is(err, pg.ErrNotFound) {
			return page.UnknownCursor()
		} else if err != nil {
			return err
		}
	}
	found, err := a.trunks.List(r.Context(), query)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(query, found, a.readStates(r.Context()).viewTrunk))
}

func (a *API) writeTrunk(w http.ResponseWriter, r *http.Request, status int, t trunks.Trunk) error {
	httpserver.SetETag(w, t.Version)
	return httpserver.WriteJSON(w, status, a.readStates(r.Context()).viewTrunk(t))
}

// readTrunk handles GET /admin/v1/trunks/{trunk_id}.
func (a *API) readTrunk(w http.ResponseWriter, r *http.Request) error {
	id, err := trunkID(r)
	if err != nil {
		return err
	}
	found, err := a.trunks.Find(r.Context(), id)
	if err != nil {
		return refusedTrunk(err, "")
	}
	return a.writeTrunk(w, r, http.StatusOK, found)
}

// changeTrunk handles PATCH /admin/v1/trunks/{trunk_id}. Settings that are not in the body stay
// unchanged. null resets a setting to its default. Live calls keep the settings with which they
// began. The version of the header If-Match is checked before the body.
func (a *API) changeTrunk(w http.ResponseWriter, r *http.Request) error {
	id, err := trunkID(r)
	if err != nil {
		return err
	}
	found, err := a.trunks.Find(r.Context(), id)
	if err != nil {
		return refusedTrunk(err, "") // for an unknown trunk, the response is 404 even if the body is invalid
	}
	if err := httpserver.CheckIfMatch(r, found.Version); err != nil {
		return err
	}
	var body map[string]json.RawMessage
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	changed, err := a.trunks.Change(r.Context(), id, func(t *trunks.Trunk) error {
		if err := httpserver.CheckIfMatch(r, t.Version); err != nil {
			return err
		}
		return t.Change(body)
	})
	if err != nil {
		return refusedTrunk(err, changed.Name)
	}
	return a.writeTrunk(w, r, http.StatusOK, changed)
}

// removeTrunk handles DELETE /admin/v1/trunks/{trunk_id}. The trunk gets no new calls. Live calls
// continue.
func (a *API) removeTrunk(w http.ResponseWriter, r *http.Request) error {
	id, err := trunkID(r)
	if err != nil {
		return err
	}
	err = a.trunks.Remove(r.Context(), id, func(t trunks.Trunk) error { return httpserver.CheckIfMatch(r, t.Version) })
	if err != nil {
		return refusedTrunk(err, "")
	}
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		Deleted bool      `json:"deleted"`
		ID      uuid.UUID `json:"id"`
	}{true, id})
}

type checkView struct {
	Step   string             `json:"step"`
	Result trunks.CheckResult `json:"result"`
	Seen   string             `json:"seen"`
	Remedy *string            `json:"remedy"`
}

// checkTrunk handles POST /admin/v1/trunks/{trunk_id}/check. The process that handles the request
// tests the trunk, without placing a call.
func (a *API) checkTrunk(w http.ResponseWriter, r *http.Request) error {
	id, err := trunkID(r)
	if err != nil {
		return err
	}
	found, err := a.trunks.Find(r.Context(), id)
	if err != nil {
		return refusedTrunk(err, "")
	}
	if a.check == nil {
		return apierr.Conflict("no_sip", "The dialer runs without SIP: set CARRIER=sip.")
	}
	answer := struct {
		ID    uuid.UUID   `json:"id"`
		Name  string      `json:"name"`
		OK    bool        `json:"ok"`
		Steps []checkView `json:"steps"`
	}{ID: found.TrunkID, Name: found.Name, OK: true}
	for _, s := range a.check(r.Context(), found) {
		answer.OK = answer.OK && s.Result != trunks.CheckFailed
		answer.Steps = append(answer.Steps, checkView{
			Step: s.Name, Result: s.Result, Seen: s.Seen, Remedy: nilIfEmpty(s.Remedy),
		})
	}
	return httpserver.WriteJSON(w, http.StatusOK, answer)
}

func trunkID(r *http.Request) (uuid.UUID, error) {
	id, err := httpserver.PathID(r, "trunk_id", "trunk")
	if err != nil {
		return id, noTrunk()
	}
	return id, nil
}

// noTrunk is the 404 for an unknown trunk. Its text names no workspace, because all workspaces
// share the trunks.
func noTrunk() error { return apierr.New(http.StatusNotFound, "not_found", "There is no such trunk.") }

func refusedTrunk(err error, name string) error {
	switch {
	case errors.Is(err, pg.ErrNotFound):
		return noTrunk()
	case errors.Is(err, store.ErrNameTaken):
		return apierr.Conflict("trunk_exists", "Another trunk is called %q already; give this one another name.", name)
	}
	return err
}
