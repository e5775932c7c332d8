package httpapi

import (
	"net/http"
	"time"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/contacts-compliance/internal/checks"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/store"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// previewView is the response to a preview. If the number may not be called, Rule, Code, Message
// and Source explain why, and NextAt is the time at which it may be called. NextAt is null if
// waiting does not help.
type previewView struct {
	PhoneE164     phone.Number        `json:"phone_e164"`
	At            openapi.Timestamp   `json:"at"`
	MayBeCalled   bool                `json:"may_be_called"`
	NextAt        *openapi.Timestamp  `json:"next_at"`
	Rule          *string             `json:"rule"`
	Code          *string             `json:"code"`
	Message       *string             `json:"message"`
	Source        *string             `json:"source"`
	DND           contacts.DND        `json:"dnd_status"`
	Consent       contacts.Consent    `json:"consent_status"`
	Country       *string             `json:"country"`
	Regions       []string            `json:"regions"`
	TimeZones     []localView         `json:"time_zones"`
	PolicyVersion int                 `json:"policy_version"`
	CallingPolicy gate.Policy         `json:"calling_policy"`
	Rules         []countryrules.Rule `json:"rules"`
	RecentDials   []openapi.Timestamp `json:"recent_dials"`
	Gates         []gate.GateReport   `json:"gates"`
}

// localLayout is RFC 3339 with three decimals and the offset of the zone.
const localLayout = "2006-01-02T15:04:05.000Z07:00"

// localView is the local time in one zone. All other times of the API are in UTC.
type localView struct {
	TimeZone  window.Zone `json:"time_zone"`
	LocalTime string      `json:"local_time"`
}

// maxAhead limits how far in the future scheduled_for can be.
const maxAhead = 366 * 24 * time.Hour

// previewContact handles GET /admin/v1/workspaces/{id}/contacts/{phone}/preview?at=. It returns the
// result that the dial-time check would have at the given time, or now if no time is given. It
// stores no decision, and does not check the workspace's permitted destinations.
func (a *API) previewContact(w http.ResponseWriter, r *http.Request) error {
	caller, number, err := operatorNumber(r)
	if err != nil {
		return err
	}
	req, err := httpserver.QueryTime(r.URL.Query(), "at")
	if err != nil {
		return err
	}
	var at time.Time
	if req != nil {
		at = *req
	}
	if time.Until(at) > maxAhead {
		return apierr.Validation("at", "may be at most 366 days ahead.")
	}
	p, err := a.checks.Preview(r.Context(), store.Target{WorkspaceID: caller.WorkspaceID, Number: number}, gate.Dial, at)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewPreview(number, p))
}

func viewDials(dials []time.Time) []openapi.Timestamp {
	view := make([]openapi.Timestamp, len(dials))
	for i, at := range dials {
		view[i] = openapi.TimestampOf(at)
	}
	return view
}

func viewPreview(number phone.Number, p checks.Preview) previewView {
	place := number.Place()
	view := previewView{
		PhoneE164: number, At: openapi.TimestampOf(p.At), MayBeCalled: p.Outcome.Result == gate.Open,
		NextAt: openapi.TimestampOrNull(p.Next), Rule: orNil(string(p.Outcome.Rule)), Code: orNil(p.Outcome.Code),
		Message: orNil(p.Outcome.Message), Source: orNil(p.Outcome.Source), DND: p.Facts.DND, Consent: p.Facts.Consent,
		Country: orNil(place.Country),
		Regions: append([]string{}, place.Regions...), TimeZones: []localView{}, PolicyVersion: p.PolicyVersion,
		CallingPolicy: p.Facts.Policy,
		Rules:         append([]countryrules.Rule{}, p.Facts.Rules...), RecentDials: viewDials(p.Facts.Dials), Gates: p.Gates,
	}
	for _, z := range p.Zones {
		view.TimeZones = append(view.TimeZones, localView{TimeZone: z, LocalTime: z.In(p.At).Format(localLayout)})
	}
	return view
}
