package pages

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

// maxReason is the maximum length of a reason in characters.
const maxReason = 500

// giveReason reads the reason from the form and adds it to the following requests to the gateway.
// It returns false if the reason is empty or too long.
func (v *visit) giveReason() bool {
	reason := strings.Join(strings.FieldsFunc(v.form("reason"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	if reason == "" || !utf8.ValidString(reason) || utf8.RuneCountInString(reason) > maxReason {
		return false
	}
	v.Reason = reason
	return true
}

// confirmed reports whether the person typed the text and gave a reason.
func (v *visit) confirmed(text string) bool {
	return v.form("confirmation") == strings.TrimSpace(text) && v.giveReason()
}

// endData is the form that hangs up a call or cancels a call request. The person gives a reason.
type endData struct {
	Number  string
	Status  string
	AgentID uuid.UUID
	Agents  agentNames
	// Key is the prefix of the texts, and Icon the icon of the button. Next is the page that the
	// person came from.
	Key, Icon, Next string
}

func showHangUp(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("call"))
	if err != nil {
		return view{}, errNotFound
	}
	var call openapi.Call
	return v.showEnd(endData{Key: "hang_up", Icon: "phone-off", Next: v.cameFrom(v.path("live"))}, "live",
		read(v, &call, v.admin("/calls/%s", id), nil),
		func(data *endData) {
			data.Number, data.Status, data.AgentID = call.To, string(call.Status), call.AgentID
			if call.Direction == openapi.Inbound {
				data.Number = call.From
			}
		})
}

func showCancel(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("request"))
	if err != nil {
		return view{}, errNotFound
	}
	var request openapi.CallRequest
	return v.showEnd(endData{Key: "cancel", Icon: "x", Next: v.cameFrom(v.path("call-requests"))}, "requests",
		read(v, &request, "/v1/call-requests/"+id.String(), nil),
		func(data *endData) {
			data.Number, data.Status, data.AgentID = request.To, string(request.Status), request.AgentID
		})
}

func (v *visit) showEnd(data endData, nav string, find func() error, fill func(*endData)) (view, error) {
	var agents gateway.Page[gateway.Agent]
	if err := concurrently(find, v.readAgents(&agents)); err != nil {
		return view{}, err
	}
	fill(&data)
	data.Agents = agents.Data
	return view{template: "end", title: data.Key + ".title", nav: nav, data: data}, nil
}

// nextPath returns the path in the form field "next", or fallback if the field is empty.
func (v *visit) nextPath(fallback string) string {
	if next := v.form("next"); next != "" {
		return localPath(next)
	}
	return fallback
}
