package contract

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
)

var inPath = regexp.MustCompile(`\{\w+\}`)

// TestOperatorDescription_MatchesTheService sends a request for every operation of the document of
// the operator API, and validates the responses. It places a call first, so that the lists contain
// items.
func TestOperatorDescription_MatchesTheService(t *testing.T) {
	document, err := Load(openapi.OperatorDescription)
	if err != nil {
		t.Fatal(err)
	}
	w := workspace(t)
	w.topUp(t, "10")
	subscription := w.write.want(t, 201, "POST", subscriptions, set{
		"name": "x", "url": "https://127.0.0.1:1/", "events": []string{"call.completed"},
	}).text("id")
	phone := number(1)
	call := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(phone)).text("id"))
	w.operator.want(t, 200, "PUT", w.admin+"/rates", []set{{"prefix": "+1", "per_minute": "0.05"}})
	consent := w.admin + "/contacts/" + url.PathEscape(phone) + "/consent"
	w.operator.want(t, 200, "PUT", consent, set{"status": "consented", "source": "test"})
	w.operator.want(t, 201, "POST", w.admin+"/opt-out-imports", set{})

	values := map[string]string{
		"id": w.id, "agent_id": w.agent, "call_id": call.text("call_id"), "call_request_id": call.text("call_request_id"),
		"subscription_id": subscription, "phone_e164": phone, "part": "1", "key_id": w.writeID,
	}
	queries := map[string]string{ // the queries of the operations that require one
		"/admin/v1/workspaces/{id}/attempts":  "?of=" + call.text("call_id"),
		"/admin/v1/workspaces/{id}/decisions": "?phone=" + url.QueryEscape(phone),
		"/admin/v1/workspaces/{id}/usage":     "?month=" + time.Now().UTC().Format("2006-01"),
	}
	var validated int
	for _, path := range sorted(document.spec.Paths.Map()) {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			address := inPath.ReplaceAllStringFunc(path, func(name string) string {
				value, known := values[strings.Trim(name, "{}")]
				if !known || (method == "DELETE" && name != "{id}") {
					value = uuid.NewString()
				}
				return url.PathEscape(value)
			})
			if method != "GET" && !strings.HasPrefix(address, w.admin+"/") {
				continue // changes of the trunks or of all dialing would affect other tests
			}
			got := w.operator.send(t, method, address+queries[path], bodyOf(method))
			if checkOperation(t, document, path, method, address, got) {
				validated++
			}
		}
	}
	if validated < 35 {
		t.Errorf("%d responses were validated, want at least 35", validated)
	}
}

func bodyOf(method string) any {
	if method == "GET" || method == "DELETE" {
		return nil
	}
	return set{}
}

// checkOperation returns true if the response is a success that the document describes.
func checkOperation(t *testing.T, document *Document, path, method, address string, got answer) (validated bool) {
	t.Helper()
	unrouted := got.status == http.StatusMethodNotAllowed || got.status == http.StatusNotFound
	described := document.spec.Paths.Value(path).GetOperation(method) != nil
	switch {
	case !described && !unrouted:
		t.Errorf("%s %s = %d, but it is not in the document", method, path, got.status)
		return false
	case described && got.status == http.StatusMethodNotAllowed:
		t.Errorf("%s %s is in the document, but the service responds 405", method, path)
		return false
	case !described, got.status >= http.StatusBadRequest:
		return false
	}
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Answer(method, parsed, got.status, got.header, []byte(got.body)); err != nil {
		t.Error(err)
		return false
	}
	return true
}
