package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"
	"time"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/calls/internal/callrequests"
	"ringfence.dev/services/calls/internal/peers"
)

func TestServe_RespondsAndStopsWithoutAnError(t *testing.T) {
	pool := pgtest.New(t, spec().Schema(), spec().Tracks()...)
	cfg := Config{
		Config: app.Config{
			HTTP:      httpserver.Config{Addr: freeAddr(t)},
			Postgres:  pg.Config{URL: pool.Config().ConnString(), MaxConns: 8, StatementTimeout: 5 * time.Second},
			Kafka:     kafkatest.New(t),
			Trust:     serviceauth.Config{SigningKey: base64.StdEncoding.EncodeToString(make([]byte, 32))},
			Telemetry: telemetry.Config{PrivateAddr: freeAddr(t), LogFormat: "text"},
		},
		Peers: peers.Config{
			ContactsURL: "http://127.0.0.1:1", WalletURL: "http://127.0.0.1:1", DialerURL: "http://127.0.0.1:1",
		},
		Intake: callrequests.Config{Lease: time.Second, Wait: time.Second},

		RepublishAfter: time.Minute, ChargeWait: time.Second, AnalysisWait: time.Second, KeepKeys: time.Hour,
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- spec().Serve(ctx, cfg) }()
	await(t, "http://"+cfg.Telemetry.PrivateAddr+"/readyz", http.StatusOK)
	// the response is 401, because the request has no caller token
	await(t, "http://"+cfg.HTTP.Addr+"/v1/calls", http.StatusUnauthorized)
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("serve ended with %v", err)
		}
	case <-time.After(testkit.Timeout):
		t.Fatal("serve did not drain")
	}
}

func await(t *testing.T, url string, status int) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%s responds with %d", url, status), func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == status
	})
}

func freeAddr(t *testing.T) string {
	t.Helper()
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}
