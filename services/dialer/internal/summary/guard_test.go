package summary

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"ringfence.dev/libs/ssrf"
)

// The operator's endpoint has a private address, and a host name of a workspace can resolve to it.
// The workspace must not be able to connect to this address.
func TestEndpoint_WorkspaceCannotReachTheOperatorsAddress(t *testing.T) {
	t.Parallel()
	operators := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(operators.Close)
	s := NewSummariser(Config{URL: operators.URL, Key: "operator"}, ssrf.New(nil), nil)

	own, err := s.endpoint(Call{})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := own.client.Get(operators.URL)
	if err != nil {
		t.Fatalf("GET for the operator: %v", err)
	}
	_ = resp.Body.Close()

	call := Call{Key: "workspace"}
	// DNS can resolve this name to the operator's address.
	call.Settings.Summary.BaseURL = "https://models.example/v1"
	workspaces, err := s.endpoint(call)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err = workspaces.client.Get(operators.URL); err == nil {
		_ = resp.Body.Close()
	}
	if !ssrf.Refused(err) {
		t.Errorf("GET for a workspace = %v, want a refusal of the guard", err)
	}
}
