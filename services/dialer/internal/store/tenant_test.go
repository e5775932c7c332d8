package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

func TestConversationInputs_HaveTheNewestSettings(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace, agent := newStore(pool), uuid.New(), uuid.New()
	save := func(version int64, settings string) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return st.SaveAgent(t.Context(), tx, dialqueue.Agent{AgentID: agent, WorkspaceID: workspace, Version: version, Name: "Ada", MaxCallSeconds: 60, Settings: []byte(settings)})
		}); err != nil {
			t.Fatalf("SaveAgent: %v", err)
		}
	}
	save(2, `{"voice":"calm","deep":[1e400000]}`)
	save(1, `{"voice":"loud"}`)
	ask := func(of uuid.UUID, direction, variables string) store.ConversationInputs {
		t.Helper()
		id := uuid.New()
		if _, err := pool.Exec(t.Context(), `
			INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, variables, status, max_call_seconds, deadline_at, time_zone)
			VALUES ($1::uuid, CASE WHEN $3::text = 'outbound' THEN $1::uuid END, $2, $3::text, '+14155550100', '+14155550101', $4, nullif($5, '')::json, 'ringing', 60, now(), 'Asia/Tokyo')`, id, workspace, direction, of, variables); err != nil {
			t.Fatal(err)
		}
		order, err := st.ConversationInputs(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return order
	}
	switch got := ask(agent, "outbound", `{"name":"Bo"}`); {
	case string(got.Settings) != `{"voice":"calm","deep":[1e400000]}`:
		t.Errorf("string(got.Settings) = %v, want `{\"voice\":\"calm\",\"deep\":[1e400000]}`",
			string(got.Settings))
	case string(got.Variables) != `{"name":"Bo"}`:
		t.Errorf("string(got.Variables) = %v, want `{\"name\":\"Bo\"}`", string(got.Variables))
	case got.Person != "+14155550101":
		t.Errorf(`got.Person = %v, want "+14155550101"`, got.Person)
	case got.TimeZone != "Asia/Tokyo":
		t.Errorf(`got.TimeZone = %v, want "Asia/Tokyo"`, got.TimeZone)
	case got.MaxCallSeconds != 60:
		t.Errorf("got.MaxCallSeconds = %v, want 60", got.MaxCallSeconds)
	case got.AgentID != agent:
		t.Errorf("got.AgentID = %v, want %v", got.AgentID, agent)
	case got.WorkspaceID != workspace:
		t.Errorf("got.WorkspaceID = %v, want %v", got.WorkspaceID, workspace)
	}
	switch got := ask(uuid.New(), "inbound", ""); {
	case string(got.Settings) != "{}":
		t.Errorf(`string(got.Settings) = %v, want "{}"`, string(got.Settings))
	case got.Variables != nil:
		t.Errorf("got.Variables = %v, want nil", got.Variables)
	case got.Person != "+14155550100":
		t.Errorf(`got.Person = %v, want "+14155550100"`, got.Person)
	}
	if _, err := st.ConversationInputs(t.Context(), uuid.New()); !errors.Is(err, store.ErrNoCall) {
		t.Errorf("no call: %v", err)
	}
}

func TestSaveAgent_DeletesTheKeyOfADeletedAgent(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace, deleted, other := newStore(pool), uuid.New(), uuid.New(), uuid.New()
	for _, agent := range []uuid.UUID{deleted, other} {
		if _, err := pool.Exec(t.Context(), "INSERT INTO agent_keys (workspace_id, agent_id, sealed) VALUES ($1, $2, 'x')", workspace, agent); err != nil {
			t.Fatal(err)
		}
	}
	for version, gone := range []bool{false, true} {
		for _, agent := range []uuid.UUID{deleted, other} {
			if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				return st.SaveAgent(t.Context(), tx, dialqueue.Agent{AgentID: agent, WorkspaceID: workspace, Version: int64(version) + 1, Name: "Ada", Settings: []byte("{}"), Deleted: gone && agent == deleted})
			}); err != nil {
				t.Fatal(err)
			}
		}
		keys := 0
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM agent_keys").Scan(&keys); err != nil {
			t.Errorf("QueryRow: %v", err)
		} else if keys != 2-version {
			t.Errorf("keys = %v, want %v; gone = %v", keys, 2-version, gone)
		}
	}
}
