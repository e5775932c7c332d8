package httpapi

import (
	"net/http"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/dialer/internal/replicas"
)

type rejectedCallView struct {
	At        openapi.Timestamp `json:"at"`
	Source    string            `json:"source"`
	Transport string            `json:"transport"`
	From      *string           `json:"from"`
	To        *string           `json:"to"`
	UserAgent *string           `json:"user_agent"`
	Reason    replicas.Reason   `json:"reason"`
	Hint      string            `json:"hint"`
}

// listRejectedCalls handles GET /admin/v1/trunks/rejected-calls. It returns the last 20 inbound
// calls and connections that any process refused, newest first.
func (a *API) listRejectedCalls(w http.ResponseWriter, r *http.Request) error {
	reports, err := a.replicas.List(r.Context())
	if err != nil {
		return err
	}
	answer := struct {
		Data    []rejectedCallView `json:"data"`
		HasMore bool               `json:"has_more"`
	}{Data: []rejectedCallView{}}
	for _, s := range replicas.RejectedCalls(reports) {
		answer.Data = append(answer.Data, rejectedCallView{
			At: openapi.TimestampOf(s.At), Source: s.Source, Transport: s.Transport, From: nilIfEmpty(s.From),
			To: nilIfEmpty(s.To), UserAgent: nilIfEmpty(s.UserAgent), Reason: s.Reason, Hint: s.Hint,
		})
	}
	return httpserver.WriteJSON(w, http.StatusOK, answer)
}
