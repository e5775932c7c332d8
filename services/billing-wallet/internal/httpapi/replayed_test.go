package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

func TestPostTransaction_UsedReferenceReturnsTheFirstTransaction(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, 0)
	for _, test := range []struct {
		name, body string
		wantStatus int
		wantHeader string
	}{
		{name: "new reference", body: `{"type":"top_up","amount":"25","reference":"r-1"}`, wantStatus: 201},
		{
			name: "used reference with the same amount",
			body: `{"type":"top_up","amount":"25","reference":"r-1"}`, wantStatus: 200,
			wantHeader: "true",
		},
		{
			name: "used reference with another amount",
			body: `{"type":"top_up","amount":"30","reference":"r-1"}`, wantStatus: 200,
			wantHeader: "true",
		},
	} {
		token, err := s.keys["gateway"].SignCaller("billing-wallet", serviceauth.Caller{
			WorkspaceID: workspace, RequestID: wallettest.ID(), Access: serviceauth.Write, Operator: "ada",
		})
		if err != nil {
			t.Fatal(err)
		}
		url := s.url + "/admin/v1/workspaces/" + workspace.String() + "/wallet/transactions"
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(serviceauth.CallerHeader, token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != test.wantStatus {
			t.Errorf("%s: status = %d, want %d", test.name, response.StatusCode, test.wantStatus)
		}
		if got := response.Header.Get("Idempotency-Replayed"); got != test.wantHeader {
			t.Errorf("%s: Idempotency-Replayed = %q, want %q", test.name, got, test.wantHeader)
		}
	}
}
