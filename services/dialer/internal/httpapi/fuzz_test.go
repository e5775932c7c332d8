package httpapi_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/httpapi"
	"ringfence.dev/services/dialer/internal/store"
)

type fixture struct {
	handler          http.Handler
	gateway          *serviceauth.Keys
	pool             *pgxpool.Pool
	workspace, agent uuid.UUID
	recordings       httpapi.Recordings
}

func open(f testing.TB) fixture {
	f.Helper()
	pool := pgtest.New(
		f,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	st := store.New(pool, uuid.Must(uuid.NewV7()), store.Timing{InstanceLease: time.Minute, ClaimLease: time.Minute})
	workspace, agent := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	if err := pgx.BeginFunc(f.Context(), pool, func(tx pgx.Tx) error {
		return st.SaveAgent(f.Context(), tx, dialqueue.Agent{AgentID: agent, WorkspaceID: workspace, Version: 1, Name: "Ada", MaxCallSeconds: 600, Settings: []byte(`{}`)})
	}); err != nil {
		f.Fatal(err)
	}
	box, err := seal.New(seal.Config{Keys: []string{"test=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	if err != nil {
		f.Fatal(err)
	}
	gateway, recordings := keys(f, "gateway"), emptyRecordings(f)
	handler, err := httpapi.New(
		st,
		store.NewTrunks(pool, box),
		store.NewReplicaReports(pool),
		store.NewTraces(pool, time.Second),
		store.NewAgentKeys(pool, box),
		recordings,
		nil,
		func() {},
		nil,
		keys(f, "dialer", "gateway="+gateway.Public()),
		nil,
	)
	if err != nil {
		f.Fatal(err)
	}
	return fixture{handler, gateway, pool, workspace, agent, recordings}
}

func (o fixture) numbersPath() string {
	return "/admin/v1/workspaces/" + o.workspace.String() + "/numbers"
}

func (o fixture) sign(t testing.TB, request *http.Request) {
	t.Helper()
	token, err := o.gateway.SignCaller(
		"dialer",
		serviceauth.Caller{
			WorkspaceID: o.workspace,
			RequestID:   uuid.Must(uuid.NewV7()),
			Access:      serviceauth.Write,
			Operator:    "ann",
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(serviceauth.CallerHeader, token)
}

func TestAddNumber_AcceptsOnlyTheCanonicalFormOfTheAgentID(t *testing.T) {
	t.Parallel()
	o := open(t)
	for spelling, want := range map[string]int{
		o.agent.String(): http.StatusCreated, "urn:uuid:" + o.agent.String(): 422, "{" + o.agent.String() + "}": 422, strings.ReplaceAll(o.agent.String(), "-", ""): 422, "": 422,
	} {
		request, _ := testkit.Request(
			t,
			http.MethodPost,
			o.numbersPath(),
			[]byte(`{"phone_e164":"+14155550100","agent_id":"`+spelling+`"}`),
		)
		o.sign(t, request)
		answer := httptest.NewRecorder()
		o.handler.ServeHTTP(answer, request)
		if answer.Code != want {
			t.Errorf("%q: answer.Code = %v, want %v", spelling, answer.Code, want)
		} else if want == 422 && !strings.Contains(answer.Body.String(), `"message":"agent_id `) {
			t.Errorf("%q: answer.Body = %q, want it to contain %q", spelling, answer.Body.String(), `"message":"agent_id `)
		}
	}
}

func FuzzAPI(f *testing.F) {
	o := open(f)
	home, own := o.numbersPath(), o.keyOf(o.agent)
	testkit.Surface{
		Handler: o.handler, Prepare: o.sign,
		Routes: []string{
			"POST " + home, "GET " + home, "GET " + home + "/{}", "DELETE " + home + "/{}",
			"PUT " + own, "GET " + own, "DELETE " + own,
			"POST " + lines, "GET " + lines, "GET " + lines + "/{}", "PATCH " + lines + "/{}", "DELETE " + lines + "/{}",
			"POST " + lines + "/{}/check", "GET " + lines + "/rejected-calls", "GET /admin/v1/dialer",
			"PUT /admin/v1/dialing", "GET /admin/v1/dialing", "PUT " + lines + "/{}/dialing", "GET " + lines + "/{}/dialing",
			"GET " + recordingstore.Path + "{}/2026/11/21/{}",
		},
		Bodies: map[string][]string{
			"POST " + home:           {`{"phone_e164":"+14155550100","agent_id":"` + o.agent.String() + `"}`},
			"PUT " + own:             {`{"key":"a-key-of-16-letters"}`},
			"PUT /admin/v1/dialing":  {`{"state":"paused","reason":"r","until":"2099-01-01T00:00:00Z"}`, `{"state":"active"}`},
			"POST " + lines:          {wholeTrunk},
			"PATCH " + lines + "/{}": {wholeTrunk, `{"password":null,"codecs":["pcma"]}`},
		},
		Queries: map[string][]string{
			"GET " + home:  {"limit", "starting_after"},
			"GET " + lines: {"limit", "starting_after"},
			"GET " + recordingstore.Path + "{}/2026/11/21/{}": {"expires", "signature"},
		},
	}.Fuzz(f)
}

func keys(t testing.TB, name string, trusted ...string) *serviceauth.Keys {
	t.Helper()
	seed := bytes.Repeat([]byte(name[:1]), ed25519.SeedSize)
	created, err := serviceauth.New(
		name,
		serviceauth.Config{SigningKey: base64.StdEncoding.EncodeToString(seed), TrustedKeys: trusted},
	)
	if err != nil {
		t.Fatal(err)
	}
	return created
}
