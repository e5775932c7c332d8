package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/settingsv1"
)

const token = "a-token-of-ada-0001"

func freeAddr(t *testing.T) string {
	t.Helper()
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// newConfig returns a configuration with a database, a broker and free ports. ownerURL is the URL
// of a server that replaces every other service.
func newConfig(t *testing.T, ownerURL string) Config {
	t.Helper()
	pool := pgtest.New(t, spec().Schema(), spec().Tracks()...)
	return Config{
		Config: app.Config{
			HTTP:      httpserver.Config{Addr: freeAddr(t)},
			Telemetry: telemetry.Config{PrivateAddr: freeAddr(t), LogFormat: "text"},
			Postgres:  pg.Config{URL: pool.Config().ConnString()}, Kafka: kafkatest.New(t),
			Trust: serviceauth.Config{SigningKey: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
		},
		AdminAddr: freeAddr(t),
		CallsURL:  ownerURL, ContactsURL: ownerURL, DialerURL: ownerURL, WalletURL: ownerURL, WebhooksURL: ownerURL,
		APIKeyPepper: "pepper-of-the-test-0001", OperatorTokens: []string{"ada=" + token},
		ReadyURLs: []string{"calls=" + ownerURL},
	}
}

func TestServe_PublishesACreatedWorkspace(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(settingsv1.NewSettingServiceHandler(fakeOwners{}))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	owner := httptest.NewServer(mux)
	defer owner.Close()
	cfg := newConfig(t, owner.URL)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- spec().Serve(ctx, cfg) }()

	testkit.Until(t, "the gateway is ready", func() bool {
		return requestJSON(t, "GET", "http://"+cfg.HTTP.Addr+"/readyz", "", "")["status"] == "ready"
	})
	admin := "http://" + cfg.AdminAddr + "/admin/v1/workspaces"
	id, _ := requestJSON(t, "POST", admin, token, `{"name":"Acme","plan":"growth","currency":"USD"}`)["id"].(string)
	key, _ := requestJSON(t, "POST", admin+"/"+id+"/api-keys", token, `{"name":"k","access":"write"}`)["key"].(string)
	if got := requestJSON(t, "POST", "http://"+cfg.HTTP.Addr+"/v1/calls", key, "{}"); got == nil {
		t.Error("POST /v1/calls: got = nil, want a value")
	} else if got["error"] != nil {
		t.Errorf(`POST /v1/calls: got["error"] = %v, want nil`, got["error"])
	}
	wantWorkspaceEvent(t, cfg.Kafka.Brokers, id)

	cancel()
	if err := <-ended; err != nil {
		t.Errorf("serve = %v, want a clean end", err)
	}
}

func TestServe_AllListenersUseTheCertificate(t *testing.T) {
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{}")
	}))
	defer owner.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.StartTLS() // StartTLS creates the certificate that the test uses
	defer secure.Close()
	cfg := newConfig(t, owner.URL)
	cfg.TLSCertFile, cfg.TLSKeyFile = writePair(t, secure.TLS.Certificates[0])
	cfg.Console.Addr = freeAddr(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- spec().Serve(ctx, cfg) }()

	client := secure.Client()
	for _, address := range []string{
		cfg.HTTP.Addr + "/readyz", cfg.AdminAddr + "/admin/v1/workspaces", cfg.Console.Addr + "/console/v1/sign-in/methods",
	} {
		testkit.NoError(t, func() error {
			answer, err := client.Get("https://" + address)
			if err != nil {
				return err
			}
			return answer.Body.Close()
		})
	}
	metrics, err := http.Get("http://" + cfg.Telemetry.PrivateAddr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer metrics.Body.Close()
	text, err := io.ReadAll(metrics.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := `ringfence_certificate_expires_timestamp_seconds{certificate="TLS_CERT_FILE"}`
	if !strings.Contains(string(text), want) {
		t.Errorf("the metrics do not contain %s", want)
	}
	renewed := newPair(t)
	replacePair(t, cfg.TLSCertFile, cfg.TLSKeyFile, renewed)
	for name, address := range map[string]string{
		"public": cfg.HTTP.Addr, "admin": cfg.AdminAddr, "console": cfg.Console.Addr,
	} {
		testkit.Until(t, "the "+name+" listener uses the new certificate", func() bool {
			served := certificateOf(t, address)
			return served != nil && bytes.Equal(served.Raw, renewed.Certificate[0])
		})
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("serve = %v, want a clean end", err)
	}
}

// newPair returns a new certificate for 127.0.0.1 and its key.
func newPair(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key}
}

// certificateOf returns the certificate that a listener uses for a new connection, or nil if no
// connection is possible.
func certificateOf(t *testing.T, address string) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

func writePair(t *testing.T, pair tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	replacePair(t, certFile, keyFile, pair)
	return certFile, keyFile
}

func replacePair(t *testing.T, certFile, keyFile string, pair tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// fakeOwners is a SettingService that replaces the SettingService of every service.
type fakeOwners struct{}

// ApplySetting accepts every setting.
func (fakeOwners) ApplySetting(
	context.Context, *connect.Request[settingsv1.ApplySettingRequest],
) (*connect.Response[settingsv1.ApplySettingResponse], error) {
	return connect.NewResponse(&settingsv1.ApplySettingResponse{}), nil
}

func wantWorkspaceEvent(t *testing.T, brokers []string, id string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("workspaces.v1"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
	defer cancel()
	var records []*kgo.Record
	for len(records) == 0 && ctx.Err() == nil { // a poll can return no records
		records = client.PollFetches(ctx).Records()
	}
	if len(records) != 1 {
		t.Fatalf("records: length of records = %d, want 1", len(records))
	}
	if string(records[0].Key) != id {
		t.Fatalf("records: records[0].Key = %q, want %q", string(records[0].Key), id)
	}
	var fact eventv1.WorkspaceEvent
	if err := proto.Unmarshal(records[0].Value, &fact); err != nil {
		t.Fatalf("fact: %v", err)
	}
	if fact.WorkspaceId != id {
		t.Errorf("fact.WorkspaceId = %v, want %v", fact.WorkspaceId, id)
	}
	if !fact.GetWorkspace().ApiEnabled {
		t.Errorf("fact.GetWorkspace().ApiEnabled = false, want true")
	}
}

// requestJSON sends a request and returns the JSON response. It returns nil if the server does not
// respond.
func requestJSON(t *testing.T, method, address, bearer, body string) map[string]any {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+bearer)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	var answer map[string]any
	_ = json.NewDecoder(response.Body).Decode(&answer)
	return answer
}
