package contract

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/test/kit/sharedstack"
)

var signInCode = regexp.MustCompile(`(?m)^[A-Z2-7]{4}-[A-Z2-7]{4}-[A-Z2-7]{4}$`)

// person signs in with a one-time code of the local stack and returns a client with the session.
func person(t *testing.T) *client {
	t.Helper()
	s := stack(t)
	c := &client{base: s.Demo.ConsoleAPI, http: &http.Client{Transport: transport(""), Timeout: 30 * time.Second}}
	printed, err := s.Command(t.Context(), "service", "gateway", "sign-in-code")
	code := signInCode.FindString(printed)
	if err != nil || code == "" {
		t.Fatalf("sign-in-code printed %q: %v", printed, err)
	}
	c.key = c.want(t, 201, "POST", "/console/v1/sign-in/code", set{"code": code}).text("token")
	c.refused(t, 401, "invalid_code", "POST", "/console/v1/sign-in/code", set{"code": code})
	return c
}

func TestConsole_OperatorPlacesAndReadsACall(t *testing.T) {
	w := workspace(t, set{"features": set{"transcripts": true}})
	w.topUp(t, "10")
	c := person(t)
	in := []string{"Ringfence-Workspace", w.id}

	id := c.want(t, 202, "POST", "/v1/calls", w.order(number(1)), in...).text("id")
	ended := w.ended(t, id)
	got := c.want(t, 200, "GET", "/v1/call-requests/"+id, nil, in...)
	sharedstack.Equal(t, "call request for the person", got.body, ended.body)

	transcript := "/v1/calls/" + ended.text("call_id") + "/transcript"
	until(t, "there is a transcript", func() bool { return w.read.send(t, "GET", transcript, nil).status == 200 })
	c.refused(t, 422, "validation_error", "GET", transcript, nil, in...)
	c.want(t, 200, "GET", transcript, nil, append(in, "Ringfence-Reason", "complaint 7")...)
	c.refused(t, 422, "validation_error", "GET", "/v1/wallet", nil)
	c.refused(t, 403, "forbidden", "GET", "/v1/unknown", nil, in...)
}

// The workspace lacks the feature `api`, so its API key cannot place a call. A person in the
// console can.
func TestConsole_CallNeedsNoFeatureOfThePlan(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	w.operator.want(t, 200, "PATCH", w.admin, set{"features": set{"api": false}})
	w.write.refused(t, 403, "api_not_enabled", "POST", "/v1/calls", w.order(number(1)))
	c := person(t)
	in := []string{"Ringfence-Workspace", w.id}
	id := c.want(t, 202, "POST", "/v1/calls", w.order(number(1)), in...).text("id")
	var ended answer
	until(t, "the call request has ended", func() bool {
		ended = c.want(t, 200, "GET", "/v1/call-requests/"+id, nil, in...)
		return ended.text("status") != "queued" && ended.text("status") != "dialing"
	})
	if got := ended.text("status"); got != "completed" {
		t.Errorf("status = %q, want completed; call request: %s", got, ended.body)
	}
}

func TestConsole_CredentialsWorkOnTheirOwnListenerOnly(t *testing.T) {
	w := workspace(t)
	c := person(t)
	in := []string{"Ringfence-Workspace", w.id}
	for name, key := range map[string]string{"API key": w.write.key, "operator token": w.operator.key} {
		other := *c
		other.key = key
		t.Log(name)
		other.refused(t, 401, "invalid_session", "GET", "/v1/wallet", nil, in...)
		other.refused(t, 401, "invalid_session", "GET", "/admin/v1/workspaces", nil)
	}
	customer(t, c.key).refused(t, 401, "invalid_api_key", "GET", "/v1/wallet", nil, in...)
	admin := operator(t)
	admin.key = c.key
	admin.refused(t, 401, "invalid_api_key", "GET", "/admin/v1/workspaces", nil)

	c.want(t, 204, "DELETE", "/console/v1/sessions/current", nil)
	c.refused(t, 401, "invalid_session", "GET", "/console/v1/me", nil)
}

// A turn is sent only while its call is in progress, so the test opens the streams before the
// calls.
func TestConsole_StreamSendsTheTurnsOfCallsInProgress(t *testing.T) {
	w := workspace(t, set{"features": set{"transcripts": true}})
	other := workspace(t, set{"features": set{"transcripts": true}})
	muted := workspace(t)
	w.topUp(t, "10")
	other.topUp(t, "10")
	c := person(t)
	w.read.refused(t, 422, "validation_error", "GET", "/v1/events?types=call.turn", nil)
	c.refused(t, 422, "validation_error", "GET", "/v1/events?types=call.turn", nil, "Ringfence-Workspace", w.id)
	c.refused(t, 422, "validation_error", "GET", "/v1/events?types=call.turn", nil, "Ringfence-Workspace", muted.id,
		"Ringfence-Reason", "complaint 7")
	turns, others := c.openTurns(t, w), c.openTurns(t, other)

	foreign := other.ended(t, other.write.want(t, 202, "POST", "/v1/calls", other.order(number(1))).text("id"))
	ended := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id"))
	callID := ended.text("call_id")
	var transcript answer
	until(t, "there is a transcript", func() bool {
		transcript = w.read.send(t, "GET", "/v1/calls/"+callID+"/transcript", nil)
		return transcript.status == 200
	})
	var want struct{ Turns []struct{ Role, Text string } }
	if err := json.Unmarshal([]byte(transcript.body), &want); err != nil {
		t.Fatal(err)
	}
	for i, turn := range want.Turns {
		got := readTurn(t, turns)
		sharedstack.Equal(t, "call of the turn", got.Data.CallID, callID)
		sharedstack.Equal(t, "call request of the turn", got.Data.CallRequestID, ended.text("id"))
		sharedstack.Equal(t, "workspace of the turn", got.WorkspaceID, w.id)
		sharedstack.Equal(t, "sequence of the turn", got.Sequence, i+1)
		sharedstack.Equal(t, "role of the turn", got.Data.Role, turn.Role)
		sharedstack.Equal(t, "text of the turn", got.Data.Text, turn.Text)
	}
	sharedstack.Equal(t, "call of the other workspace", readTurn(t, others).Data.CallID, foreign.text("call_id"))
}

type streamedTurn struct {
	WorkspaceID string `json:"workspace_id"`
	Sequence    int
	Data        struct {
		CallID        string `json:"call_id"`
		CallRequestID string `json:"call_request_id"`
		Role, Text    string
	}
}

// openTurns opens a stream of the turns of a workspace.
func (c *client) openTurns(t *testing.T, w *tenant) *openapi.EventReader {
	t.Helper()
	address := c.base + "/v1/events?types=call.turn"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Ringfence-Workspace", w.id)
	request.Header.Set("Ringfence-Reason", "complaint 7")
	response, err := (&http.Client{Transport: transport("")}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	sharedstack.Equal(t, "status of the stream", response.StatusCode, http.StatusOK)
	return openapi.NewEventReader(response.Body)
}

func readTurn(t *testing.T, from *openapi.EventReader) (turn streamedTurn) {
	t.Helper()
	event, err := from.Next()
	if err != nil {
		t.Fatalf("read the next turn: %v", err)
	}
	sharedstack.Equal(t, "type of the event", string(event.Type), "call.turn")
	sharedstack.Equal(t, "id of the message", event.ID, uuid.Nil)
	if err := json.Unmarshal(event.Data, &turn); err != nil {
		t.Fatal(err)
	}
	return turn
}

// TestConsoleDescription_MatchesTheService validates the responses of the routes for people.
func TestConsoleDescription_MatchesTheService(t *testing.T) {
	document, err := Load(openapi.ConsoleDescription)
	if err != nil {
		t.Fatal(err)
	}
	w := workspace(t)
	c := person(t)
	in := []string{"Ringfence-Workspace", w.id}
	validate := func(method, path, address string, body any) answer {
		t.Helper()
		got := c.send(t, method, address, body, in...)
		if !checkOperation(t, document, path, method, address, got) {
			t.Errorf("%s %s = %d %s, want a success that the document describes", method, address, got.status, got.body)
		}
		return got
	}
	const invitations, operators = "/console/v1/invitations", "/console/v1/operator-invitations"
	invited := validate("POST", invitations, invitations, set{"role": "viewer"})
	operator := validate("POST", operators, operators, nil)
	validate("POST", "/console/v1/sign-in/invitation", "/console/v1/sign-in/invitation",
		set{"invitation": invited.text("token")})
	me := c.want(t, 200, "GET", "/console/v1/me", nil)
	var read struct{ Person struct{ ID string } }
	if err := json.Unmarshal([]byte(me.body), &read); err != nil {
		t.Fatal(err)
	}
	for _, path := range sorted(document.spec.Paths.Map()) {
		if document.spec.Paths.Value(path).Get == nil || path == "/console/v1/members/{person_id}" {
			continue
		}
		address := strings.ReplaceAll(path, "{person_id}", read.Person.ID)
		address = strings.ReplaceAll(address, operators+"/{invitation_id}", operators+"/"+operator.text("id"))
		address = strings.ReplaceAll(address, "{invitation_id}", invited.text("id"))
		validate("GET", path, address, nil)
	}
	for path, id := range map[string]string{invitations: invited.text("id"), operators: operator.text("id")} {
		c.want(t, 204, "DELETE", path+"/"+id, nil, in...)
	}
}
