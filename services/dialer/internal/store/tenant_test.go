package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/tenant"
)

func TestSaveAgent_TheNewestVersionsSettingsCount(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace, agent := newStore(pool), uuid.New(), uuid.New()
	save := func(version int64, settings string) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return st.SaveAgent(t.Context(), tx, tenant.Agent{AgentID: agent, WorkspaceID: workspace, Version: version, Name: "Ada", MaxCallSeconds: 60, Settings: []byte(settings)})
		}); err != nil {
			t.Fatalf("SaveAgent: %v", err)
		}
	}
	save(2, `{"voice":"calm","deep":[1e400000]}`)
	save(1, `{"voice":"loud"}`)
	if got, err := st.AgentSettings(t.Context(), workspace, agent); err != nil || string(got) != `{"voice":"calm","deep":[1e400000]}` {
		t.Errorf("settings = %s, %v", got, err)
	}
	if got, err := st.AgentSettings(t.Context(), uuid.New(), agent); !errors.Is(err, store.ErrNoAgent) {
		t.Errorf("another workspace's look = %s, %v", got, err)
	}
}
