package audit

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/google/uuid"
)

// Object describes what an audit entry is about.
type Object struct {
	// Action is the type of the object and a verb, for example call_request.cancel.
	Action string
	Type   string `db:"object_type"`
	// ID is a UUID, a phone number in E.164 form, or the name of a trunk. It is empty if the entry
	// is not about a single object.
	ID string `db:"object_id"`
}

// Filter selects audit entries of a workspace. A field that is nil does not filter.
type Filter struct {
	ActorID, ObjectType, ObjectID *string
	// From and Until select the entries whose ids are at least From and less than Until.
	From, Until *uuid.UUID
}

const workspacePath = "/admin/v1/workspaces/{id}"

// actions maps routes to the actions of the audit log. A route is a method and a path template. The
// map contains each route that changes something, and each route that returns transcripts or
// recordings.
var actions = map[string]string{
	"POST /v1/calls":                                    "call_request.create",
	"GET /v1/calls/{id}":                                "transcript.read",
	"GET /v1/calls/{id}/transcript":                     "transcript.read",
	"GET /v1/calls/{id}/recording":                      "recording.read",
	"POST /v1/calls/{id}/hangup":                        "call.hangup",
	"POST /v1/call-requests/{id}/cancel":                "call_request.cancel",
	"PUT /v1/dialing":                                   "dialing.update",
	"GET /v1/events":                                    "event_stream.read",
	"POST /v1/contacts":                                 "contact.create",
	"PATCH /v1/contacts/{id}":                           "contact.update",
	"POST /v1/opt-outs":                                 "opt_out.create",
	"DELETE /v1/opt-outs/{phone_e164}":                  "opt_out.delete",
	"POST /v1/webhook-subscriptions":                    "webhook_subscription.create",
	"PATCH /v1/webhook-subscriptions/{id}":              "webhook_subscription.update",
	"DELETE /v1/webhook-subscriptions/{id}":             "webhook_subscription.delete",
	"POST /v1/webhook-subscriptions/{id}/rotate-secret": "webhook_subscription.rotate_secret",
	"POST /v1/webhook-subscriptions/{id}/test":          "webhook_subscription.test",
	"POST /v1/webhook-subscriptions/{id}/replay":        "webhook_subscription.replay",
	"GET /v1/webhook-deliveries/{id}":                   "webhook_delivery.read",
	"POST /v1/webhook-deliveries/{id}/resend":           "webhook_delivery.resend",

	"POST /admin/v1/workspaces":                                          "workspace.create",
	"PATCH " + workspacePath:                                             "workspace.update",
	"POST " + workspacePath + "/api-keys":                                "api_key.create",
	"DELETE " + workspacePath + "/api-keys/{key_id}":                     "api_key.revoke",
	"POST " + workspacePath + "/calls/{call_id}/hangup":                  "call.hangup",
	"POST " + workspacePath + "/hangup":                                  "workspace.hangup",
	"PUT " + workspacePath + "/dialing":                                  "dialing.update",
	"PUT " + workspacePath + "/agents/{agent_id}/dialing":                "dialing.update",
	"POST " + workspacePath + "/call-requests/{call_request_id}/cancel":  "call_request.cancel",
	"POST " + workspacePath + "/agents":                                  "agent.create",
	"PATCH " + workspacePath + "/agents/{agent_id}":                      "agent.update",
	"DELETE " + workspacePath + "/agents/{agent_id}":                     "agent.delete",
	"PUT " + workspacePath + "/agent-keys/{agent_id}":                    "agent_key.update",
	"DELETE " + workspacePath + "/agent-keys/{agent_id}":                 "agent_key.delete",
	"POST " + workspacePath + "/numbers":                                 "number.create",
	"DELETE " + workspacePath + "/numbers/{number_id}":                   "number.delete",
	"POST " + workspacePath + "/wallet/transactions":                     "wallet_transaction.create",
	"PATCH " + workspacePath + "/wallet":                                 "wallet.update",
	"PUT " + workspacePath + "/rates":                                    "rates.update",
	"DELETE " + workspacePath + "/contacts/{phone_e164}":                 "contact.erase",
	"PUT " + workspacePath + "/contacts/{phone_e164}/consent":            "consent.update",
	"POST " + workspacePath + "/opt-out-imports":                         "opt_out_import.create",
	"PUT " + workspacePath + "/opt-out-imports/{import_id}/parts/{part}": "opt_out_import.update",
	"POST " + workspacePath + "/opt-out-imports/{import_id}/start":       "opt_out_import.start",

	"PATCH " + subscriptionPath:                                     "webhook_subscription.update",
	"DELETE " + subscriptionPath:                                    "webhook_subscription.delete",
	"POST " + subscriptionPath + "/replay":                          "webhook_subscription.replay",
	"POST " + subscriptionPath + "/deliveries/replay":               "webhook_subscription.replay",
	"POST " + subscriptionPath + "/deliveries/{delivery_id}/replay": "webhook_delivery.replay",
	"POST " + subscriptionPath + "/deliveries/{delivery_id}/resend": "webhook_delivery.resend",

	"POST " + workspacePath + "/invitations":                   "invitation.create",
	"DELETE " + workspacePath + "/invitations/{invitation_id}": "invitation.delete",
	"PATCH " + workspacePath + "/members/{person_id}":          "member.update",
	"DELETE " + workspacePath + "/members/{person_id}":         "member.delete",
	"POST /admin/v1/operator-invitations":                      "operator_invitation.create",
	"DELETE /admin/v1/operator-invitations/{invitation_id}":    "operator_invitation.delete",
	"POST /admin/v1/people/{person_id}/recovery":               "person.recover",
	"DELETE /admin/v1/people/{person_id}/sessions":             "person.sign_out",
	"DELETE /admin/v1/people/{person_id}/operator":             "operator.delete",

	"POST /admin/v1/parked-records/{event_id}/replay": "parked_record.replay",

	"PUT /admin/v1/dialing":                   "dialing.update",
	"PUT /admin/v1/trunks/{trunk_id}/dialing": "dialing.update",
	"POST /admin/v1/trunks/{trunk_id}/check":  "trunk.check",
	"POST /admin/v1/trunks":                   "trunk.create",
	"PATCH /admin/v1/trunks/{trunk_id}":       "trunk.update",
	"DELETE /admin/v1/trunks/{trunk_id}":      "trunk.delete",

	"DELETE /console/v1/sessions":                             "session.delete",
	"DELETE /console/v1/sessions/{session_id}":                "session.delete",
	"POST /console/v1/passkeys/finish":                        "passkey.create",
	"DELETE /console/v1/passkeys/{passkey_id}":                "passkey.delete",
	"POST /console/v1/invitations":                            "invitation.create",
	"DELETE /console/v1/invitations/{invitation_id}":          "invitation.delete",
	"POST /console/v1/invitations/accept":                     "invitation.accept",
	"PATCH /console/v1/members/{person_id}":                   "member.update",
	"DELETE /console/v1/members/{person_id}":                  "member.delete",
	"POST /console/v1/operator-invitations":                   "operator_invitation.create",
	"DELETE /console/v1/operator-invitations/{invitation_id}": "operator_invitation.delete",
	"POST /console/v1/people/{person_id}/recovery":            "person.recover",
	"DELETE /console/v1/people/{person_id}/sessions":          "person.sign_out",
	"DELETE /console/v1/people/{person_id}/operator":          "operator.delete",
}

const subscriptionPath = workspacePath + "/webhook-subscriptions/{subscription_id}"

// ObjectOf returns the object of a request. The id is read from the path. It is empty if the path
// names only the workspace. The result is false if the route neither changes anything nor returns
// transcripts or recordings.
func ObjectOf(method, template string, path *url.URL) (Object, bool) {
	action, found := actions[method+" "+template]
	kind, _, _ := strings.Cut(action, ".")
	return Object{Action: action, Type: kind, ID: idInPath(template, path)}, found
}

// idInPath returns the last path segment that is a parameter. It ignores two parameters: the id of
// the workspace, and the number of a part of an opt-out import.
func idInPath(template string, path *url.URL) (id string) {
	names, values := strings.Split(template, "/"), strings.Split(path.EscapedPath(), "/")
	if len(names) != len(values) {
		return ""
	}
	for i, name := range names {
		ofWorkspace := i == 4 && strings.HasPrefix(template, workspacePath)
		if !strings.HasPrefix(name, "{") || ofWorkspace || name == "{part}" {
			continue
		}
		if text, err := url.PathUnescape(values[i]); err == nil {
			id = text
		}
	}
	return strings.ToValidUTF8(strings.ReplaceAll(id, "\x00", ""), "")
}

// idInState returns the id of a new object from the response that describes the object.
func idInState(state json.RawMessage) string {
	var object struct {
		ID          string `json:"id"`
		PhoneNumber string `json:"phone_e164"`
	}
	if json.Unmarshal(state, &object) != nil {
		return ""
	}
	if object.ID != "" {
		return object.ID
	}
	return object.PhoneNumber
}

// Complete returns the entry with the id of its object, and with the reason in the state After. The
// path of a request that creates an object has no id, so the id is read from After. If After has no
// id either, the object is the workspace.
func (e Entry) Complete() Entry {
	if e.Object.ID == "" {
		e.Object.ID = idInState(e.After)
	}
	if e.Object.ID == "" && e.WorkspaceID != nil {
		e.Object.ID = e.WorkspaceID.String()
	}
	if e.Reason != "" {
		e.After = withReason(e.After, e.Reason)
	}
	return e
}

// withReason adds a reason to a state. It does not change a state that already has a member named
// reason.
func withReason(state json.RawMessage, reason string) json.RawMessage {
	members := map[string]json.RawMessage{}
	if state != nil && json.Unmarshal(state, &members) != nil {
		return state
	}
	text, err := json.Marshal(reason)
	if _, has := members["reason"]; has || err != nil {
		return state
	}
	members["reason"] = text
	added, err := json.Marshal(members)
	if err != nil {
		return state
	}
	return added
}

// ReadsIn returns the objects whose content the client can read in a response. For a call, these
// can be the transcript (also as a summary) and the recording. If body is nil, because it is too
// large, ReadsIn returns every object that the response can contain.
func ReadsIn(object Object, template string, body []byte) (objects []Object) {
	type call struct {
		RecordingURL *string         `json:"recording_url"`
		Summary      json.RawMessage `json:"summary"`
		Transcript   *struct {
			Turns []json.RawMessage `json:"turns"`
		} `json:"transcript"`
	}
	var shown struct {
		call
		Event struct {
			Data call `json:"data"`
		} `json:"event"`
	}
	err := json.Unmarshal(body, &shown)
	hasWords := func(c call) bool {
		hasSummary := len(c.Summary) > 0 && string(c.Summary) != "null"
		return hasSummary || (c.Transcript != nil && len(c.Transcript.Turns) > 0)
	}
	switch template {
	case "/v1/calls/{id}":
		if err != nil || hasWords(shown.call) { // record a read if the body cannot be parsed
			objects = append(objects, object)
		}
		if err != nil || shown.RecordingURL != nil {
			objects = append(objects, Object{Action: "recording.read", Type: "recording", ID: object.ID})
		}
	case "/v1/webhook-deliveries/{id}":
		if err != nil || hasWords(shown.Event.Data) || shown.Event.Data.RecordingURL != nil {
			objects = append(objects, object)
		}
	default:
		objects = append(objects, object)
	}
	return objects
}
