package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/pgtest"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/store/past"
	"ringfence.dev/services/dialer/internal/tenant"
)

// TestFence_NotInADatabaseThatHasBecomeAnother: a failover may be over between two looks of the guard, and the new server not know what the old one permitted.
func TestFence_NotInADatabaseThatHasBecomeAnother(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, first string
		want        error
	}{
		{"nobody has said anything yet", `DELETE FROM told_until`, nil},
		{"the one of its mark", `SELECT`, nil},
		{"another than that of its mark", `UPDATE told_until SET timeline = '0000000A'`, store.ErrLost},
		{"found to be older than what was told", `UPDATE told_until SET timeline = ''`, store.ErrLost},
		{"one that does not tell", `UPDATE told_until SET timeline = '0000000A'; REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, known := newStore(pool), past.New(pool)
			mark, err := known.Mark(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := known.Vouch(t.Context(), mark.Now); err != nil {
				t.Fatal(err)
			}
			if _, err := pgtest.Super(t, pool, "dialer").Exec(t.Context(), tt.first); err != nil {
				t.Fatal(err)
			}
			r := aRequest(uuid.Must(uuid.NewV7()), 1)
			enqueue(t, pool, st, r)
			if got := claim(t, st, 1); len(got) != 1 {
				t.Fatalf("claimed %d", len(got))
			}
			if err := st.Fence(t.Context(), r, uuid.Must(uuid.NewV7()), tenant.DefaultFrom, "sim"); !errors.Is(err, tt.want) {
				t.Errorf("fence = %v, want %v", err, tt.want)
			}
		})
	}
}
