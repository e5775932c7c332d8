package contract

import (
	"net/http"
	"regexp"
	"testing"
	"time"

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
