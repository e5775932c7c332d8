package rejoining_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pgtest"
	"ringfence.dev/libs/polltest"
	"ringfence.dev/services/dialer/internal/rejoining"
	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store/past"
)

// staged is the same database, whose server says the timeline that a row names.
func (r *restored) staged(timeline string) (st *past.Store, super *pgxpool.Pool) {
	r.Helper()
	super = pgtest.Super(r.T, r.pool, "dialer")
	for _, sql := range []string{
		`CREATE TABLE line (name text)`, `INSERT INTO line VALUES ('` + timeline + `')`,
		`CREATE FUNCTION pg_walfile_name(pg_lsn) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT name FROM dialer.line'`,
	} {
		if _, err := super.Exec(r.Context(), sql); err != nil {
			r.Fatal(err)
		}
	}
	cfg := r.pool.Config()
	cfg.ConnConfig.RuntimeParams["search_path"] = "dialer, pg_catalog"
	pool, err := pgxpool.NewWithConfig(r.Context(), cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(pool.Close)
	return past.New(pool), super
}

// TestGuard_ASecondFailoverIsToldToo: the server that takes the place of the old one is gone as well, in the seconds in which it is gone through, and what this process had told it with it. The
// third is not vouched for before it was told.
func TestGuard_ASecondFailoverIsToldToo(t *testing.T) {
	t.Parallel()
	r, id := newRestored(t), uuid.New()
	r.order(id)
	r.told(inbound(uuid.New(), "completed", 1)) // there is a topic
	r.marked(time.Second, "00000001")
	st, super := r.staged("00000002")
	_, err := super.Exec(t.Context(), `CREATE TABLE vouched (fences bigint);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN INSERT INTO dialer.vouched SELECT count(*) FROM dialer.fences; RETURN NEW; END';
		CREATE TRIGGER note BEFORE UPDATE ON told_until FOR EACH ROW WHEN (NEW.timeline = '00000003') EXECUTE FUNCTION note()`)
	if err != nil {
		t.Fatal(err)
	}
	guard := rejoining.NewGuard(r.cfg, st, func() {})
	guard.Dialling(request.Request{CallRequestID: id, WorkspaceID: r.workspace, To: "+14155550401", AgentID: uuid.New()}, uuid.New(), "+15005550006")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- guard.Run(ctx) }()
	polltest.Until(t, "the second server has the fence", func() bool { return len(r.fenced(id)) > 0 })
	_, err = super.Exec(t.Context(), `BEGIN; DELETE FROM calls; DELETE FROM fences; UPDATE dial_queue SET state = 'queued', ended_at = NULL; UPDATE line SET name = '00000003'; COMMIT`)
	if err != nil {
		t.Fatal(err)
	}
	vouched := 0
	polltest.Until(t, "the hold ends", func() bool {
		if err := super.QueryRow(t.Context(), `SELECT count(*) FROM vouched`).Scan(&vouched); err != nil {
			t.Fatal(err)
		}
		return vouched > 0
	})
	var fences int
	if err := super.QueryRow(t.Context(), `SELECT min(fences) FROM vouched`).Scan(&fences); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if fences != 1 {
		t.Errorf("fences = %v, want 1", fences)
	}
	stop()
	<-done
}
