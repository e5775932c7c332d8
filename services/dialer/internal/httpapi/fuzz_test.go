package httpapi_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/fuzztest"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/dialer/internal/httpapi"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/tenant"
	"ringfence.dev/services/dialer/migrations"
)

// FuzzAPI asks for the operator's numbers of one workspace that has one agent.
func FuzzAPI(f *testing.F) {
	pool := pgtest.New(f, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer", FS: migrations.FS})
	st := store.New(pool, uuid.Must(uuid.NewV7()), store.Timing{InstanceLease: time.Minute, ClaimLease: time.Minute})
	workspace, agent := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	if err := pgx.BeginFunc(f.Context(), pool, func(tx pgx.Tx) error {
		return st.SaveAgent(f.Context(), tx, tenant.Agent{AgentID: agent, WorkspaceID: workspace, Version: 1, Name: "Ada", MaxCallSeconds: 600})
	}); err != nil {
		f.Fatal(err)
	}
	gateway := keys(f, "gateway")
	handler, err := httpapi.New(st, nil, keys(f, "dialer", "gateway="+gateway.Public()), nil)
	if err != nil {
		f.Fatal(err)
	}
	home := "/admin/v1/workspaces/" + workspace.String() + "/numbers"
	fuzztest.Surface{
		Handler: handler,
		Prepare: func(t testing.TB, request *http.Request) {
			token, err := gateway.SignCaller("dialer", trust.Caller{WorkspaceID: workspace, RequestID: uuid.Must(uuid.NewV7()), Access: trust.Write, Operator: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set(trust.CallerHeader, token)
		},
		Routes:  []string{"POST " + home, "GET " + home, "GET " + home + "/{}", "DELETE " + home + "/{}"},
		Bodies:  map[string][]string{"POST " + home: {`{"phone_e164":"+14155550100","agent_id":"` + agent.String() + `"}`}},
		Queries: map[string][]string{"GET " + home: {"limit", "starting_after"}},
	}.Fuzz(f)
}

func keys(t testing.TB, name string, trusted ...string) *trust.Keys {
	t.Helper()
	seed := bytes.Repeat([]byte(name[:1]), ed25519.SeedSize)
	made, err := trust.New(name, trust.Config{SigningKey: base64.StdEncoding.EncodeToString(seed), TrustedKeys: trusted})
	if err != nil {
		t.Fatal(err)
	}
	return made
}
