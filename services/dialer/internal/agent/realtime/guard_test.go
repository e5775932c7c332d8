package realtime

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/dialer/internal/agent"
)

// The operator's model has a private address, and a host name of a workspace can resolve to it. The
// workspace must not be able to connect to this address.
func TestClient_WorkspaceCannotConnectToTheOperatorsModel(t *testing.T) {
	t.Parallel()
	operators := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(operators.Close)
	o := New(Config{URL: operators.URL, Key: "operator"}, ssrf.New(nil), nil)

	resp, err := o.client(agent.Spec{}).Get(operators.URL)
	if err != nil {
		t.Fatalf("GET for the operator: %v", err)
	}
	_ = resp.Body.Close()

	spec := agent.Spec{Key: "workspace"}
	spec.Settings.BaseURL = "wss://models.example/v1" // DNS can resolve this workspace's URL to the operator's address
	if resp, err = o.client(spec).Get(operators.URL); err == nil {
		_ = resp.Body.Close()
	}
	if !ssrf.Refused(err) {
		t.Errorf("GET for a workspace = %v, want a refusal of the guard", err)
	}
}
