package serviceauth

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func seed(t *testing.T) string {
	t.Helper()
	raw := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(raw)
	return base64.StdEncoding.EncodeToString(raw)
}

func keys(t *testing.T, self string, trusted ...string) *Keys {
	t.Helper()
	k, err := New(self, Config{SigningKey: seed(t), TrustedKeys: trusted})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func trusts(k *Keys) string { return k.self + "=" + k.Public() }

func testCaller() Caller {
	return Caller{WorkspaceID: uuid.Must(uuid.NewV7()), RequestID: uuid.Must(uuid.NewV7()), Access: Write, Webhooks: true}
}

func call(middleware func(http.Handler) http.Handler, token string) (int, Caller, string) {
	var seen Caller
	handler := middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = CallerFrom(r.Context()) }))
	request := httptest.NewRequest(http.MethodGet, "/v1/calls", nil)
	if token != "" {
		request.Header.Set(CallerHeader, token)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	return answer.Code, seen, answer.Body.String()
}

func TestRequireCaller_PassesTheCallerToTheHandler(t *testing.T) {
	gateway := keys(t, Gateway)
	calls := keys(t, "calls", trusts(gateway))
	want := testCaller()
	token, err := gateway.SignCaller("calls", want)
	if err != nil {
		t.Fatal(err)
	}
	if status, got, _ := call(calls.RequireCaller, token); status != http.StatusOK {
		t.Errorf("status = %v, want %v", status, http.StatusOK)
	} else if got != want {
		t.Errorf("status: got = %v, want %v", got, want)
	}
	if status, _, _ := call(calls.RequireOperator, token); status != http.StatusUnauthorized {
		t.Errorf("a customer on an operator's route = %d, want 401", status)
	}
	want.Operator = "ada"
	token, _ = gateway.SignCaller("calls", want)
	if status, got, _ := call(calls.RequireOperator, token); status != http.StatusOK {
		t.Errorf("operator: status = %v, want %v", status, http.StatusOK)
	} else if got != want {
		t.Errorf("operator: got = %v, want %v", got, want)
	}
}

// The test runs in synctest, so that each token is verified at the same time at which it was
// signed.
func TestRequireCaller_RejectsInvalidTokens(t *testing.T) { synctest.Test(t, refuses) }

func refuses(t *testing.T) {
	gateway, dialer, untrusted := keys(t, Gateway), keys(t, "dialer"), keys(t, Gateway)
	calls := keys(t, "calls", trusts(gateway), trusts(dialer))
	good := claims{Use: forCaller, Workspace: uuid.Must(uuid.NewV7()), Operator: "ada"}
	sign := func(k *Keys, aud string, c claims, now time.Time) string {
		token, err := k.sign(aud, c, now)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	now := time.Now()
	free := func(method jwt.SigningMethod, key any, c claims) string {
		token, err := jwt.NewWithClaims(method, c).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	registered := func(exp *jwt.NumericDate) claims {
		c := good
		c.RegisteredClaims = jwt.RegisteredClaims{Issuer: Gateway, Audience: jwt.ClaimStrings{"calls"}, ExpiresAt: exp}
		return c
	}
	valid := sign(gateway, "calls", good, now)
	for _, row := range []struct{ name, token string }{
		{"no token", ""},
		{"text that is not a JWT", "abc"},
		{"another audience", sign(gateway, "dialer", good, now)},
		{"expired longer ago than the leeway", sign(gateway, "calls", good, now.Add(-tokenLife-leeway-time.Second))},
		{"issued later than the leeway allows", sign(gateway, "calls", good, now.Add(leeway+2*time.Second))},
		{"the gateway's name signed with an unknown key", sign(untrusted, "calls", good, now)},
		{"a caller's token signed by a service other than the gateway", sign(dialer, "calls", good, now)},
		{"a token that identifies a service", sign(gateway, "calls", claims{Use: forService}, now)},
		{"a changed signature", valid[:len(valid)-8] + "AAAAAAAA"},
		{
			"unsigned, with alg none",
			free(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, registered(jwt.NewNumericDate(now.Add(time.Minute)))),
		},
		{
			"signed as HMAC with the public key",
			free(jwt.SigningMethodHS256, []byte(gateway.Public()), registered(jwt.NewNumericDate(now.Add(time.Minute)))),
		},
		{"no expiry time", free(jwt.SigningMethodEdDSA, gateway.private, registered(nil))},
		{
			"valid for a day",
			free(jwt.SigningMethodEdDSA, gateway.private, registered(jwt.NewNumericDate(now.Add(24*time.Hour)))),
		},
	} {
		for _, middleware := range []func(http.Handler) http.Handler{calls.RequireCaller, calls.RequireOperator} {
			status, _, body := call(middleware, row.token)
			var refused struct {
				Error struct{ Code, Message string }
			}
			err := json.Unmarshal([]byte(body), &refused)
			if err != nil {
				t.Fatalf("%s: %v", row.name, err)
			}
			if status != http.StatusUnauthorized {
				t.Errorf("%s: status = %v, want %v", row.name, status, http.StatusUnauthorized)
			}
			if refused.Error.Code != "invalid_api_key" {
				t.Errorf("%s: refused.Error.Code = %q, want \"invalid_api_key\"", row.name, refused.Error.Code)
			}
		}
	}
	inLeeway := sign(gateway, "calls", good, now.Add(-tokenLife-leeway/2))
	if status, _, _ := call(calls.RequireCaller, inLeeway); status != http.StatusOK {
		t.Errorf("expired within the leeway = %d, want 200", status)
	}
}

func TestKeys_AcceptTheOldAndTheNewKeyDuringARotation(t *testing.T) {
	before, after := keys(t, Gateway), keys(t, Gateway)
	calls := keys(t, "calls", trusts(before), trusts(after))
	for _, k := range []*Keys{before, after} {
		token, _ := k.SignCaller("calls", testCaller())
		if status, _, _ := call(calls.RequireCaller, token); status != http.StatusOK {
			t.Errorf("status = %d, want 200 with either key", status)
		}
	}
}

func TestNew_ErrorListsEveryInvalidKey(t *testing.T) {
	_, err := New("calls", Config{SigningKey: "short", TrustedKeys: []string{"gateway=abc", "=x", ""}})
	if err == nil {
		t.Fatalf("New: err = nil, want an error")
	}
	if strings.Count(err.Error(), "TRUSTED_KEYS") != 2 {
		t.Errorf("New: strings.Count(err.Error(), \"TRUSTED_KEYS\") = %v, want 2", strings.Count(err.Error(), "TRUSTED_KEYS"))
	}
	if !strings.Contains(err.Error(), "SIGNING_KEY") {
		t.Errorf("New: err.Error() = %q, want it to contain %q", err.Error(), "SIGNING_KEY")
	}
}

func ask(t *testing.T, client []connect.ClientOption, answer connect.HandlerOption) error {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/q/Ask", connect.NewUnaryHandler("/q/Ask",
		func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			return connect.NewResponse(&emptypb.Empty{}), nil
		}, answer))
	server := httptest.NewServer(mux)
	defer server.Close()
	asking := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+"/q/Ask", client...)
	_, err := asking.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{}))
	return err
}

func TestAllowServices_AcceptsOnlyTheNamedServices(t *testing.T) {
	calls, dialer, untrusted := keys(t, "calls"), keys(t, "dialer"), keys(t, "calls")
	wallet := keys(t, "billing-wallet", trusts(calls), trusts(dialer))
	callerToken := func(k *Keys) []connect.ClientOption {
		token, _ := k.SignCaller("billing-wallet", testCaller())
		return []connect.ClientOption{connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
				r.Header().Set(ServiceHeader, token)
				return next(ctx, r)
			}
		}))}
	}
	with := func(i connect.Interceptor) []connect.ClientOption {
		return []connect.ClientOption{connect.WithInterceptors(i)}
	}
	if err := ask(t, with(calls.ClientInterceptor("billing-wallet")), wallet.AllowServices("calls")); err != nil {
		t.Errorf("request of calls: %v", err)
	}
	for _, row := range []struct {
		name   string
		client []connect.ClientOption
		want   connect.Code
	}{
		{"no token", nil, connect.CodeUnauthenticated},
		{"another audience", with(calls.ClientInterceptor("dialer")), connect.CodeUnauthenticated},
		{
			"a known service's name signed with an unknown key", with(untrusted.ClientInterceptor("billing-wallet")),
			connect.CodeUnauthenticated,
		},
		{"a token that identifies a caller", callerToken(calls), connect.CodeUnauthenticated},
		{"a known service that is not listed", with(dialer.ClientInterceptor("billing-wallet")), connect.CodePermissionDenied},
	} {
		if err := ask(t, row.client, wallet.AllowServices("calls")); connect.CodeOf(err) != row.want {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
	}
}

func TestAllowServices_LimitsTheDecompressedSizeOfABody(t *testing.T) {
	calls := keys(t, "calls")
	wallet := keys(t, "billing-wallet", trusts(calls))
	decoded := 0
	server := httptest.NewServer(connect.NewUnaryHandler("/q/Ask",
		func(_ context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[emptypb.Empty], error) {
			decoded = len(r.Msg.GetValue())
			return connect.NewResponse(&emptypb.Empty{}), nil
		}, wallet.AllowServices("calls")))
	defer server.Close()
	asking := connect.NewClient[wrapperspb.StringValue, emptypb.Empty](server.Client(), server.URL+"/q/Ask",
		connect.WithSendGzip(), connect.WithInterceptors(calls.ClientInterceptor("billing-wallet")))
	// This message of 4 MiB has only a few KiB when compressed.
	_, err := asking.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String(strings.Repeat("a", 4<<20))))
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a packed 4 MiB: connect.CodeOf(err) = %v, want %v", connect.CodeOf(err), connect.CodeResourceExhausted)
	} else if decoded != 0 {
		t.Errorf("a packed 4 MiB: decoded = %v, want 0", decoded)
	}
}

// maxOpenTime is how long a connection can stay open after its request.
const maxOpenTime = 5 * connectTimeout

func TestClient_ClosesConnectionsToASilentServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	accepted, closed := make(chan struct{}), make(chan error, 1)
	go func() {
		conn, err := silent.Accept()
		if err != nil {
			closed <- err
			return
		}
		defer func() { _ = conn.Close() }()
		close(accepted)
		_ = conn.SetReadDeadline(time.Now().Add(maxOpenTime))
		for err == nil {
			_, err = conn.Read(make([]byte, 4096))
		}
		closed <- err
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-accepted; cancel() }()
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+silent.Addr().String(), nil)
	if answer, err := Client().Do(request); err == nil {
		_ = answer.Body.Close()
		t.Error("request to a server that sends no response: error = nil, want an error")
	}
	if err := <-closed; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is open %s after the request, want it closed after %s", maxOpenTime, connectTimeout)
	}
}
