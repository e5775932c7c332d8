package httpapi_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/services/billing-wallet/internal/httpapi"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

type stack struct {
	testing.TB
	url     string
	handler http.Handler
	pool    *pgxpool.Pool
	store   *store.Store
	keys    map[string]*serviceauth.Keys
}

func start(t testing.TB) *stack {
	t.Helper()
	names := []string{"gateway", "calls", "dialer", "billing-wallet"}
	seeds, trusted := map[string]string{}, []string{}
	for i, name := range names {
		seed := bytes.Repeat([]byte{byte(i + 1)}, ed25519.SeedSize)
		public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
		seeds[name] = base64.StdEncoding.EncodeToString(seed)
		trusted = append(trusted, name+"="+base64.StdEncoding.EncodeToString(public))
	}
	pool := wallettest.Pool(t)
	s := &stack{TB: t, pool: pool, store: store.New(pool), keys: map[string]*serviceauth.Keys{}}
	for _, name := range names {
		keys, err := serviceauth.New(name, serviceauth.Config{SigningKey: seeds[name], TrustedKeys: trusted})
		if err != nil {
			t.Fatal(err)
		}
		s.keys[name] = keys
	}
	routes, err := httpapi.New(s.store, store.NewHoldBatcher(s.store, nil)).Routes(nil, s.keys["billing-wallet"])
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	s.url, s.handler = server.URL, routes
	return s
}

// request sends a request and returns the status and the body of the response. If operator is
// empty, a customer sends the request.
func (s *stack) request(method, path string, workspace uuid.UUID, operator, body string) (int, string) {
	s.Helper()
	token, err := s.keys["gateway"].SignCaller("billing-wallet", serviceauth.Caller{
		WorkspaceID: workspace, RequestID: wallettest.ID(), Access: serviceauth.Read, Operator: operator,
	})
	if err != nil {
		s.Fatal(err)
	}
	request, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	request.Header.Set(serviceauth.CallerHeader, token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // the error of Close is ignored, because the body was read to its end
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	testkit.CheckTimestamps(s, text)
	return answer.StatusCode, strings.TrimSpace(string(text))
}

func (s *stack) checkResponse(what string, gotStatus int, got string, status int, fragments ...string) {
	s.Helper()
	if gotStatus != status {
		s.Errorf("%s: %d %s, want %d", what, gotStatus, got, status)
	}
	for _, fragment := range fragments {
		if !strings.Contains(got, fragment) {
			s.Errorf("%s: %s does not contain %s", what, got, fragment)
		}
	}
}

func TestWallet_HasExactlyTheDocumentedFields(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, 0)
	status, body := s.request("GET", "/v1/wallet", workspace, "", "")
	if status != 200 {
		t.Errorf("fresh wallet: status = %v, want 200", status)
	} else if body != `{"balance":0,"currency":"USD","last_transaction_at":null}` {
		t.Errorf("fresh wallet: body = %q, want %q", body, `{"balance":0,"currency":"USD","last_transaction_at":null}`)
	}
	s.request("POST", "/admin/v1/workspaces/"+workspace.String()+"/wallet/transactions", workspace, "ops",
		`{"type":"top_up","amount":"12.500001","reference":"r-1"}`)
	if _, err := s.hold("calls", workspace, wallettest.ID(), 600); err != nil {
		t.Fatal(err)
	}
	_, body = s.request("GET", "/v1/wallet", workspace, "", "")
	var wallet map[string]any
	if err := json.Unmarshal([]byte(body), &wallet); err != nil {
		t.Fatalf("wallet: json.Unmarshal: %v", err)
	} else if len(wallet) != 3 {
		t.Fatalf("wallet: length of wallet = %d, want 3; body = %s", len(wallet), body)
	}
	s.checkResponse("a hold does not lower the balance", 200, body, 200, `"balance":12.500001,`, `Z"`)
	status, body = s.request("GET", "/admin/v1/workspaces/"+workspace.String()+"/wallet", workspace, "ops", "")
	s.checkResponse("the operator's wallet", status, body, 200, `"balance":12.500001`, `"held":0.5`,
		`"spendable":12.000001`)
	status, body = s.request("GET", "/admin/v1/workspaces/"+workspace.String()+"/wallet/reconcile", workspace, "ops", "")
	s.checkResponse("reconcile", status, body, 200, `"ok":true`, `"open_holds":0.5`,
		`"differences":[],"difference_count":0`)
	status, body = s.request("GET", "/v1/wallet", wallettest.ID(), "", "")
	s.checkResponse("no wallet", status, body, 404, `"not_found"`)
	status, body = s.request("POST", "/v1/wallet", workspace, "", "{}")
	s.checkResponse("wrong method", status, body, 405, `"method_not_allowed"`)
}

func TestChangeWallet_SetsTheLowBalanceThreshold(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace, other := wallettest.Workspace(t, s.store, 20*money.Credit), wallettest.Workspace(t, s.store, money.Credit)
	path := "/admin/v1/workspaces/" + workspace.String() + "/wallet"
	status, body := s.request("GET", path, workspace, "ops", "")
	s.checkResponse("before", status, body, 200, `"low_balance_threshold":null`)
	for _, given := range []struct{ body, want string }{
		{body: `{"low_balance_threshold":"10.50"}`, want: `"low_balance_threshold":10.5`},
		{body: `{}`, want: `"low_balance_threshold":10.5`},
		{body: `{"low_balance_threshold":"0.000001"}`, want: `"low_balance_threshold":0.000001`},
		{body: `{"low_balance_threshold":null}`, want: `"low_balance_threshold":null`},
		{body: `{"low_balance_threshold":"1000000000"}`, want: `"low_balance_threshold":1000000000`},
	} {
		status, body = s.request("PATCH", path, workspace, "ops", given.body)
		s.checkResponse(given.body, status, body, 200, given.want, `"balance":20`)
		status, body = s.request("GET", path, workspace, "ops", "")
		s.checkResponse("GET after "+given.body, status, body, 200, given.want)
	}
	for _, wrong := range []string{
		`{"low_balance_threshold":10}`, `{"low_balance_threshold":"0"}`, `{"low_balance_threshold":"-1"}`,
		`{"low_balance_threshold":""}`, `{"low_balance_threshold":"1e3"}`, `{"low_balance_threshold":"0.0000001"}`,
		`{"low_balance_threshold":"1000000000.000001"}`, `{"low_balance_threshold":[]}`, `{"low_balance_threshold":"\u0000"}`,
	} {
		status, body = s.request("PATCH", path, workspace, "ops", wrong)
		s.checkResponse(wrong, status, body, 422, `"validation_error"`, "low_balance_threshold")
	}
	status, body = s.request("PATCH", path, workspace, "ops", `{`)
	s.checkResponse("not JSON", status, body, 422, `"validation_error"`)
	unknown := "/admin/v1/workspaces/" + wallettest.ID().String() + "/wallet"
	status, body = s.request("PATCH", unknown, workspace, "ops", `{"low_balance_threshold":"1"}`)
	s.checkResponse("no wallet", status, body, 404, `"not_found"`)
	status, body = s.request("GET", "/admin/v1/workspaces/"+other.String()+"/wallet", other, "ops", "")
	s.checkResponse("the other workspace", status, body, 200, `"low_balance_threshold":null`)
	status, body = s.request("GET", "/v1/wallet", other, "", "")
	s.checkResponse("the customer's wallet", status, body, 200, `{"balance":1,"currency":"USD",`)
}

func TestPostTransaction_RepeatedReferenceIsPostedOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, 0)
	path := "/admin/v1/workspaces/" + workspace.String() + "/wallet/transactions"
	status, first := s.request("POST", path, workspace, "ada", `{"type":"top_up","amount":"10","reference":"r-1","x":1}`)
	s.checkResponse("first", status, first, 201, `"type":"top_up"`, `"amount":"10"`, `"reference":"r-1"`,
		`"operator":"ada"`)
	status, again := s.request("POST", path, workspace, "bob", `{"type":"adjustment","amount":"-99","reference":"r-1"}`)
	if status != 200 {
		t.Errorf("seen reference: status = %v, want 200", status)
	} else if again != first {
		t.Errorf("seen reference: again = %v, want %v", again, first)
	}
	status, body := s.request("POST", path, workspace, "ada",
		`{"type":"adjustment","amount":"-10.000001","reference":"r-2"}`)
	s.checkResponse("below zero", status, body, 409, `"insufficient_credits"`)
	status, body = s.request("POST", path, workspace, "ada", `{"type":"adjustment","amount":"-10","reference":"r-2"}`)
	s.checkResponse("to zero", status, body, 201, `"amount":"-10"`)

	status, body = s.request("GET", path+"?limit=1", workspace, "ada", "")
	s.checkResponse("page", status, body, 200, `"has_more":true`, `"reference":"r-2"`)
	var member struct{ ID uuid.UUID }
	if err := json.Unmarshal([]byte(first), &member); err != nil {
		t.Fatal(err)
	}
	if status, body = s.request("GET", path+"/"+member.ID.String(), workspace, "ada", ""); status != 200 {
		t.Errorf("member: status = %v, want 200", status)
	} else if body != first {
		t.Errorf("member: body = %v, want %v", body, first)
	}
	status, body = s.request("GET", path+"/"+wallettest.ID().String(), workspace, "ada", "")
	s.checkResponse("unknown member", status, body, 404, `"not_found"`)
	status, body = s.request("GET", path+"?type=gift", workspace, "ada", "")
	s.checkResponse("unknown type", status, body, 422, "type")
	status, body = s.request("GET", path+"?starting_after="+wallettest.ID().String(), workspace, "ada", "")
	s.checkResponse("unknown cursor", status, body, 422, "starting_after")
}

func TestPostTransaction_ErrorsNameTheField(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	for body, field := range map[string]string{
		`{"amount":"1","reference":"r"}`:                                                "type",
		`{"type":"hold","amount":"1","reference":"r"}`:                                  "type",
		`{"type":1,"amount":"1","reference":"r"}`:                                       "type",
		`{"type":"top_up","reference":"r"}`:                                             "amount",
		`{"type":"top_up","amount":null,"reference":"r"}`:                               "amount",
		`{"type":"top_up","amount":5,"reference":"r"}`:                                  "amount",
		`{"type":"top_up","amount":"1e3","reference":"r"}`:                              "amount",
		`{"type":"top_up","amount":"0.0000001","reference":"r"}`:                        "amount",
		`{"type":"top_up","amount":"0","reference":"r"}`:                                "amount",
		`{"type":"top_up","amount":"-1","reference":"r"}`:                               "amount",
		`{"type":"adjustment","amount":"0.0","reference":"r"}`:                          "amount",
		`{"type":"top_up","amount":"1000000000.000001","reference":"r"}`:                "amount",
		`{"type":"top_up","amount":"1000000000","reference":"r"}`:                       "amount", // the balance would be above the limit
		`{"type":"top_up","amount":"1"}`:                                                "reference",
		`{"type":"top_up","amount":"1","reference":""}`:                                 "reference",
		`{"type":"top_up","amount":"1","reference":"` + strings.Repeat("é", 256) + `"}`: "reference",
		`{"type":"top_up","amount":"1","reference":"a\u0000b"}`:                         "reference",
		`{"type":`: "JSON",
	} {
		status, answer := s.request("POST", "/admin/v1/workspaces/"+workspace.String()+"/wallet/transactions", workspace,
			"ops", body)
		s.checkResponse(body, status, answer, 422, `"validation_error"`, field)
	}
	wallettest.Balances(t, s.store, workspace, money.Credit, 0)
}

func TestRates_ResponseIsAValidRequestBody(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	path := "/admin/v1/workspaces/" + workspace.String() + "/rates"
	const want = `{"data":[{"prefix":"+44","per_minute":"0.1","increment_seconds":60},{"prefix":"+4420","per_minute":"0","increment_seconds":1}],"has_more":false}`
	const list = `[{"prefix":"+44","per_minute":"0.10","increment_seconds":60},{"prefix":"+4420","per_minute":"0"}]`
	if status, body := s.request("PUT", path, workspace, "ops", list); status != 200 {
		t.Errorf("PUT rates: status = %v, want 200", status)
	} else if body != want {
		t.Errorf("PUT rates: body = %v, want %v", body, want)
	}
	for _, bad := range []string{
		`[{"prefix":"44","per_minute":"1"}]`, `[{"per_minute":"1"}]`, `[{"prefix":"+44"}]`, `[{"prefix":"+44","per_minute":1}]`,
		`[{"prefix":"+44","per_minute":"-1"}]`, `[{"prefix":"+44","per_minute":"1","increment_seconds":0}]`,
		`[{"prefix":"+44","per_minute":"1"},{"prefix":"+44","per_minute":"2"}]`, `{}`, `null`, ``,
	} {
		status, body := s.request("PUT", path, workspace, "ops", bad)
		s.checkResponse("PUT "+bad, status, body, 422, `"validation_error"`)
	}
	if status, body := s.request("GET", path, workspace, "ops", ""); status != 200 {
		t.Errorf("GET rates after refusals: status = %v, want 200", status)
	} else if body != want {
		t.Errorf("GET rates after refusals: body = %v, want %v", body, want)
	}
	if status, body := s.request("PUT", path, workspace, "ops", `[]`); status != 200 {
		t.Errorf("PUT no rates: status = %v, want 200", status)
	} else if body != `{"data":[],"has_more":false}` {
		t.Errorf("PUT no rates: body = %q, want %q", body, `{"data":[],"has_more":false}`)
	}
}

func TestRoutes_OnlyTheGatewayIsAccepted(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	admin := "/admin/v1/workspaces/" + workspace.String()
	for _, path := range []string{admin + "/wallet", admin + "/rates", admin + "/wallet/transactions"} {
		status, body := s.request("GET", path, workspace, "", "")
		s.checkResponse("a customer at "+path, status, body, 401, `"invalid_api_key"`)
	}
	answer, err := http.Get(s.url + "/v1/wallet") //nolint:noctx // no header identifies the caller
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // the error of Close is ignored, because only the status code is read
	if answer.StatusCode != 401 {
		t.Errorf("without a caller = %d, want 401", answer.StatusCode)
	}
}

func (s *stack) hold(asker string, workspace, request uuid.UUID, seconds int32) (*billingv1.HoldResponse, error) {
	s.Helper()
	client := billingv1.NewHoldServiceClient(http.DefaultClient, s.url, connect.WithInterceptors(s.keys[asker].ClientInterceptor("billing-wallet")))
	answer, err := client.Hold(s.Context(), connect.NewRequest(&billingv1.HoldRequest{
		CallRequestId: request.String(), WorkspaceId: workspace.String(), ToE164: "+15550100123", MaxCallSeconds: seconds,
	}))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

func TestHold_ReturnsTheHoldOrTheMissingCredit(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, money.Credit*3/4)
	request := wallettest.ID()
	for range 2 {
		answer, err := s.hold("calls", workspace, request, 600)
		if err != nil {
			t.Fatalf("Hold: error = %v", err)
		}
		if got := answer.GetHeld().GetAmountMicro(); got != 500_000 {
			t.Fatalf("Hold: answer.GetHeld().GetAmountMicro() = %v, want 500_000", got)
		}
		if got := answer.GetHeld().GetCurrency(); got != "USD" {
			t.Fatalf("Hold: answer.GetHeld().GetCurrency() = %v, want USD", got)
		}
	}
	answer, err := s.hold("calls", workspace, wallettest.ID(), 600)
	if err != nil {
		t.Errorf("Hold past the credit: %v", err)
	} else if !strings.Contains(answer.GetInsufficient().GetMessage(), "0.25 USD") {
		t.Errorf(`Hold past the credit: answer.GetInsufficient().GetMessage() = %q, want it to contain "0.25 USD"`,
			answer.GetInsufficient().GetMessage())
	}
	for name, tt := range map[string]struct {
		asker     string
		workspace uuid.UUID
		request   uuid.UUID
		seconds   int32
		want      connect.Code
	}{
		"the gateway is refused":   {"gateway", workspace, wallettest.ID(), 600, connect.CodePermissionDenied},
		"no wallet":                {"calls", wallettest.ID(), wallettest.ID(), 600, connect.CodeNotFound},
		"another workspace's id":   {"calls", wallettest.Workspace(t, s.store, money.Credit), request, 600, connect.CodeFailedPrecondition},
		"a call of no length":      {"calls", workspace, wallettest.ID(), 0, connect.CodeInvalidArgument},
		"a call longer than a day": {"calls", workspace, wallettest.ID(), 86_401, connect.CodeInvalidArgument},
	} {
		if _, err := s.hold(tt.asker, tt.workspace, tt.request, tt.seconds); connect.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

// The response to a repeated hold must contain the max_call_seconds of the first hold.
func TestHold_RepeatedHoldKeepsMaxCallSeconds(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, 10*money.Credit)
	request := wallettest.ID()
	for _, reported := range []int32{60, 600} {
		answer, err := s.hold("calls", workspace, request, reported)
		if err != nil {
			t.Fatalf("Hold for %d s: %v", reported, err)
		}
		if got := answer.GetHeld().GetMaxCallSeconds(); got != 60 {
			t.Errorf("Hold for %d s returned max_call_seconds %d, want 60", reported, got)
		}
	}
}

func (s *stack) holdInbound(
	workspace, call uuid.UUID, inbound *billingv1.InboundHold,
) (*billingv1.HoldResponse, error) {
	s.Helper()
	client := billingv1.NewHoldServiceClient(http.DefaultClient, s.url,
		connect.WithInterceptors(s.keys["dialer"].ClientInterceptor("billing-wallet")))
	inbound.CallId = call.String()
	answer, err := client.Hold(s.Context(), connect.NewRequest(&billingv1.HoldRequest{
		WorkspaceId: workspace.String(), MaxCallSeconds: 600, Inbound: inbound,
	}))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

func TestHold_InboundHoldHasTheGivenPriceAndCallID(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace, call := wallettest.Workspace(t, s.store, money.Credit/2), wallettest.ID()
	price := &billingv1.InboundHold{PerMinuteMicro: 30_000, IncrementSeconds: 6}
	for range 2 { // a repeated request makes no second hold
		answer, err := s.holdInbound(workspace, call, price)
		if err != nil {
			t.Fatalf("Hold: %v", err)
		}
		if got := answer.GetHeld().GetAmountMicro(); got != 300_000 {
			t.Errorf("amount = %d, want 300000", got)
		}
	}
	wallettest.Balances(t, s.store, workspace, 200_000, 300_000)
	answer, err := s.holdInbound(workspace, wallettest.ID(), price)
	if err != nil {
		t.Fatalf("Hold: %v", err)
	}
	if answer.GetInsufficient() == nil {
		t.Errorf("Hold above the credit = %v, want insufficient", answer)
	}
	path := "/admin/v1/workspaces/" + workspace.String() + "/wallet/transactions?type=hold"
	status, body := s.request("GET", path, workspace, "ada", "")
	s.checkResponse("transactions", status, body, 200, `"call_id":"`+call.String()+`"`, `"call_request_id":null`)
}

func TestHold_RefusesAnInvalidPriceOfAnInboundCall(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	for name, price := range map[string]*billingv1.InboundHold{
		"a negative price":      {PerMinuteMicro: -1, IncrementSeconds: 1},
		"a price above maximum": {PerMinuteMicro: 1_000_000_001, IncrementSeconds: 1},
		"no increment":          {PerMinuteMicro: 1},
		"a long increment":      {PerMinuteMicro: 1, IncrementSeconds: 3601},
	} {
		if _, err := s.holdInbound(workspace, wallettest.ID(), price); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: Hold = %v, want invalid_argument", name, err)
		}
	}
	wallettest.Balances(t, s.store, workspace, money.Credit, 0)
}
