package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

func FuzzAPI(f *testing.F) {
	s := start(f)
	workspace := wallettest.Workspace(f, s.store, money.Credit)
	home := "/admin/v1/workspaces/" + workspace.String()
	testkit.Surface{
		Handler: s.handler,
		Prepare: func(t testing.TB, request *http.Request) {
			token, err := s.keys["gateway"].SignCaller("billing-wallet", serviceauth.Caller{
				WorkspaceID: workspace, RequestID: wallettest.ID(), Access: serviceauth.Write, Operator: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set(serviceauth.CallerHeader, token)
		},
		Routes: []string{
			"GET /v1/wallet", "GET " + home + "/wallet", "GET " + home + "/wallet/reconcile", "POST " + home + "/wallet/transactions",
			"GET " + home + "/wallet/transactions", "GET " + home + "/wallet/transactions/{}", "PUT " + home + "/rates", "GET " + home + "/rates",
			"GET /admin/v1/workspaces/{}/wallet",
		},
		IDs: []string{workspace.String()},
		Bodies: map[string][]string{
			"POST " + home + "/wallet/transactions": {
				`{"type":"top_up","amount":"12.50","reference":"r-1"}`, `{"type":"adjustment","amount":"-0.000001","reference":"r-2"}`,
				`{"type":"top_up","amount":"9223372036854.775807","reference":"r-3"}`, `{"type":"top_up","amount":"1000000000","reference":"r-4"}`,
			},
			"PUT " + home + "/rates": {
				`[{"prefix":"+1","per_minute":"0.05","increment_seconds":6}]`, `[]`, `[null]`, `[1]`, `[{"prefix":"` + strings.Repeat("+", 5000) + `","per_minute":"0.05"}]`, `[{"prefix":"+1","per_minute":"0.05"},{"prefix":"+1","per_minute":"1"}]`,
				`[{"prefix":"1","per_minute":"0.05"}]`, `[{"prefix":"+1","per_minute":0.05}]`, `[{"prefix":"+1","per_minute":"1e5"}]`, `[{"prefix":"+1","per_minute":"1","increment_seconds":1e99}]`,
			},
		},
		Queries: map[string][]string{"GET " + home + "/wallet/transactions": {"limit", "starting_after", "type"}},
	}.Fuzz(f)
}
