package outbox

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
)

func TestFloor_RisesOnlyIfNoRowWithALowerIDCanCommit(t *testing.T) {
	t.Parallel()
	type read struct {
		last            int64
		all             bool
		xmin, deletedBy int64
	}
	tests := []struct {
		name  string
		reads []read
		want  int64
	}{
		{name: "rows were read once", reads: []read{{last: 10, all: true, xmin: 100, deletedBy: 105}}, want: 0},
		{
			name:  "another relay had deleted the rows",
			reads: []read{{last: 10, all: true, xmin: 100}, {all: true, xmin: 106}},
			want:  0,
		},
		{
			name:  "a transaction that was running has not ended",
			reads: []read{{last: 10, all: true, xmin: 100, deletedBy: 105}, {all: true, xmin: 105}},
			want:  0,
		},
		{
			name:  "all transactions that were running have ended",
			reads: []read{{last: 10, all: true, xmin: 100, deletedBy: 105}, {all: true, xmin: 106}},
			want:  11,
		},
		{
			name:  "the second read stopped below the first one's last row",
			reads: []read{{last: 10, all: true, xmin: 100, deletedBy: 105}, {last: 9, all: false, xmin: 106, deletedBy: 110}},
			want:  0,
		},
		{
			name:  "the second read passed the first one's last row",
			reads: []read{{last: 10, all: true, xmin: 100, deletedBy: 105}, {last: 2000, all: false, xmin: 106, deletedBy: 110}},
			want:  11,
		},
		{name: "nothing was ever read", reads: []read{{all: true, xmin: 1}, {all: true, xmin: 2}}, want: 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			f := floor{lastSweep: now}
			for _, r := range test.reads {
				f.updateAfterRead(r.last, r.all, r.xmin, r.deletedBy)
			}
			if got, _ := f.readFrom(now); got != test.want {
				t.Errorf("floor = %d, want %d", got, test.want)
			}
			if got, sweep := f.readFrom(now.Add(sweepInterval)); got != 0 || !sweep {
				t.Errorf("from after the sweep interval = %d, sweep %v, want 0, true", got, sweep)
			}
		})
	}
}

const fillAndDelete = `
INSERT INTO outbox (event_id, topic, key, headers, payload)
SELECT gen_random_uuid(), 't', 'k', '{}', 'x' FROM generate_series(1, 20000);
DELETE FROM outbox;
UPDATE outbox_leases SET floor = (SELECT last_value FROM pg_sequences
	WHERE schemaname = current_schema() AND sequencename = 'outbox_id_seq')`

// While another transaction has an old snapshot, vacuum cannot remove deleted rows.
func TestRelay_ReadsNoDeletedRowsBelowTheFloor(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "outbox_test", Migrations)
	owner := pgtest.Owner(t, pool, "outbox_test")
	err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(old pgx.Tx) error {
		const keepOpen = `SET LOCAL idle_in_transaction_session_timeout = 0; SELECT count(*) FROM outbox`
		if _, err := old.Exec(t.Context(), keepOpen); err != nil {
			return err
		}
		if _, err := owner.Exec(t.Context(), fillAndDelete); err != nil {
			return err
		}
		if _, err := owner.Exec(t.Context(), "VACUUM ANALYZE outbox"); err != nil {
			return err
		}
		var floor int64
		if err := pool.QueryRow(t.Context(), `SELECT floor FROM outbox_leases`).Scan(&floor); err != nil {
			return err
		}
		for _, test := range []struct {
			name      string
			statement string
			args      pg.Args
			most      int
		}{
			{name: "the relay reads rows", statement: oldestRows, args: pg.Args{"floor": floor, "most": batchRows}, most: 20},
			{name: "the relay reads the age of the oldest row", statement: sampleAge, args: pg.Args{}, most: 30},
		} {
			if got := pagesOf(t, pool, test.statement, test.args); got > test.most {
				t.Errorf("pages of %s = %d, want at most %d", test.name, got, test.most)
			}
		}
		if got := pagesOf(t, pool, oldestRows, pg.Args{"floor": int64(0), "most": batchRows}); got < 200 {
			t.Errorf("pages of a read from the first row = %d, want more: the test shows nothing", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func pagesOf(t *testing.T, pool *pgxpool.Pool, statement string, args pg.Args) int {
	t.Helper()
	var plan []byte
	explain := "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement
	if err := pool.QueryRow(t.Context(), explain, args).Scan(&plan); err != nil {
		t.Fatalf("explain: %v", err)
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(plan, &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}
