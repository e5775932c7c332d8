package store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

func setDialing(
	t *testing.T, st *store.Store, scope dialqueue.PauseScope, paused bool, until *time.Time,
) dialqueue.DialingState {
	t.Helper()
	state, err := st.SetDialing(t.Context(), scope, dialqueue.DialingChange{
		Paused: paused, Reason: "Wrong script", Until: until,
		Actor: dialqueue.Actor{Type: dialqueue.ActorOperator, Name: "ops"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

const knownAgent = `
INSERT INTO agents (agent_id, workspace_id, version, name, from_e164, max_call_seconds, deleted)
VALUES ($1, $2, 1, 'Ida', '', 600, false)`

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func claimedIDs(t *testing.T, st *store.Store) (ids []uuid.UUID) {
	t.Helper()
	for {
		taken := claimRequests(t, st, 10)
		if len(taken) == 0 {
			return ids
		}
		for _, r := range taken {
			ids = append(ids, r.CallRequestID)
		}
	}
}

func TestClaim_TakesNoRequestOfAPausedScope(t *testing.T) {
	t.Parallel()
	workspace, other := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	// ofAgent and ofSecond are requests of two agents of the workspace. ofOther is a request of
	// another workspace.
	ofAgent, ofSecond, ofOther := aRequest(workspace, 1), aRequest(workspace, 2), aRequest(other, 3)
	tests := []struct {
		name   string
		scope  dialqueue.PauseScope
		before []dialqueue.Request // claimed during the pause
		after  []dialqueue.Request // claimed after the pause
	}{
		{name: "everything", scope: dialqueue.PauseScope{Level: dialqueue.PauseEverything},
			after: []dialqueue.Request{ofAgent, ofSecond, ofOther}},
		{name: "workspace", scope: dialqueue.PauseScope{Level: dialqueue.PauseWorkspace, ID: workspace},
			before: []dialqueue.Request{ofOther}, after: []dialqueue.Request{ofAgent, ofSecond}},
		{name: "agent", scope: dialqueue.PauseScope{Level: dialqueue.PauseAgent, ID: ofAgent.AgentID},
			before: []dialqueue.Request{ofSecond, ofOther}, after: []dialqueue.Request{ofAgent}},
		{name: "trunk", scope: dialqueue.PauseScope{Level: dialqueue.PauseTrunk, ID: workspace},
			before: []dialqueue.Request{ofAgent, ofSecond, ofOther}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st := newStore(pool)
			enqueue(t, pool, st, ofAgent, ofSecond, ofOther)
			setDialing(t, st, tt.scope, true, nil)
			if got := claimedIDs(t, st); !sameIDs(got, tt.before) {
				t.Errorf("claimed during the pause = %v, want %v", got, idsOf(tt.before))
			}
			setDialing(t, st, tt.scope, false, nil)
			if _, err := st.MovePaused(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := claimedIDs(t, st); !sameIDs(got, tt.after) {
				t.Errorf("claimed after the pause = %v, want %v", got, idsOf(tt.after))
			}
		})
	}
}

func idsOf(requests []dialqueue.Request) (ids []uuid.UUID) {
	for _, r := range requests {
		ids = append(ids, r.CallRequestID)
	}
	return ids
}

func sameIDs(got []uuid.UUID, want []dialqueue.Request) bool {
	order := func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) }
	return slices.Equal(slices.SortedFunc(slices.Values(got), order), slices.SortedFunc(slices.Values(idsOf(want)), order))
}

func TestSetDialing_PauseEndsAtItsUntilTime(t *testing.T) {
	t.Parallel()
	for _, level := range []dialqueue.PauseLevel{
		dialqueue.PauseEverything, dialqueue.PauseWorkspace, dialqueue.PauseAgent,
	} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
			enqueue(t, pool, st, r)
			scope := dialqueue.PauseScope{Level: level}
			switch level {
			case dialqueue.PauseWorkspace:
				scope.ID = r.WorkspaceID
			case dialqueue.PauseAgent:
				scope.ID = r.AgentID
			}
			until := time.Now().Add(time.Second)
			setDialing(t, st, scope, true, &until)
			if got := claimedIDs(t, st); len(got) > 0 && time.Now().Before(until) {
				t.Errorf("claimed during the pause = %v, want none", got)
			}
			testkit.Until(t, "the request is claimed after the pause", func() bool {
				if _, err := st.MovePaused(t.Context()); err != nil {
					t.Fatal(err)
				}
				return len(claimRequests(t, st, 1)) == 1
			})
			if now := time.Now(); now.Before(until) {
				t.Errorf("the request was claimed %s before the end of the pause", until.Sub(now))
			}
			state, err := st.Dialing(t.Context(), scope)
			if err != nil {
				t.Fatal(err)
			}
			if state.Paused {
				t.Error("state.Paused after the end = true, want false")
			}
		})
	}
}

func TestDialing_ReturnsTheLastChange(t *testing.T) {
	t.Parallel()
	st := newStore(newPool(t))
	scope := dialqueue.PauseScope{Level: dialqueue.PauseWorkspace, ID: uuid.Must(uuid.NewV7())}
	unset, err := st.Dialing(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dialqueue.DialingState{PauseScope: scope}, unset); diff != "" {
		t.Errorf("state before the first change (-want +got):\n%s", diff)
	}
	for _, paused := range []bool{true, true, false, true} {
		want := setDialing(t, st, scope, paused, nil)
		got, err := st.Dialing(t.Context(), scope)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("state after a change (-want +got):\n%s", diff)
		}
		if got.Paused != paused {
			t.Errorf("got.Paused = %t, want %t", got.Paused, paused)
		}
	}
	listed, err := st.PausedScopes(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(listed) != 1 {
		t.Errorf("paused scopes = %v, want one", listed)
	}
}

// After concurrent changes of a scope, at most one pause may be open, and it must match the stored
// state.
func TestSetDialing_ConcurrentChangesLeaveAConsistentState(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, scope := newStore(pool), dialqueue.PauseScope{Level: dialqueue.PauseEverything}
	done := make(chan error)
	for n := range 20 {
		go func() {
			_, err := st.SetDialing(t.Context(), scope, dialqueue.DialingChange{
				Paused: n%2 == 0, Reason: "r", Actor: dialqueue.Actor{Type: dialqueue.ActorOperator, Name: "ops"},
			})
			done <- err
		}()
	}
	for range 20 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	state, err := st.Dialing(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	open, want := countRows(t, pool, `SELECT count(*) FROM dialing_pauses WHERE ends_at > now()`), 0
	if state.Paused {
		want = 1
	}
	if open != want {
		t.Errorf("open pauses = %d with paused = %t, want %d", open, state.Paused, want)
	}
}

// Every claim reads the periods of the pauses. So a client that often pauses and resumes must not
// create many periods.
func TestSetDialing_PausesWithinAMinuteAreStoredAsOnePeriod(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	scope := dialqueue.PauseScope{Level: dialqueue.PauseWorkspace, ID: uuid.Must(uuid.NewV7())}
	for range 5 {
		setDialing(t, st, scope, true, nil)
		setDialing(t, st, scope, false, nil)
	}
	exec(t, pool, `UPDATE dialing_pauses SET began_at = began_at - interval '2 minutes',
		ends_at = ends_at - interval '2 minutes'`)
	setDialing(t, st, scope, true, nil)
	var periods, open int
	const read = "SELECT count(*), count(*) FILTER (WHERE ends_at = 'infinity') FROM dialing_pauses"
	if err := pool.QueryRow(t.Context(), read).Scan(&periods, &open); err != nil {
		t.Fatal(err)
	}
	if periods != 2 || open != 1 {
		t.Errorf("periods = %d, open = %d, want 2 and 1", periods, open)
	}
}

// The requests of a suspended workspace must end as blocked within seconds, even during a pause.
func TestClaim_TakesRequestsOfASuspendedWorkspaceDuringAPause(t *testing.T) {
	t.Parallel()
	for _, level := range []dialqueue.PauseLevel{
		dialqueue.PauseEverything, dialqueue.PauseWorkspace, dialqueue.PauseAgent,
	} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
			enqueue(t, pool, st, r)
			exec(t, pool, knownAgent, r.AgentID, r.WorkspaceID)
			scope := dialqueue.PauseScope{Level: level}
			switch level {
			case dialqueue.PauseWorkspace:
				scope.ID = r.WorkspaceID
			case dialqueue.PauseAgent:
				scope.ID = r.AgentID
			}
			setDialing(t, st, scope, true, nil)
			exec(t, pool, "UPDATE workspaces SET status = 'suspended'")
			if _, err := st.MovePaused(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := claimedIDs(t, st); !sameIDs(got, []dialqueue.Request{r}) {
				t.Errorf("claimed = %v, want the request", got)
			}
		})
	}
}

// Paused time does not count towards the age limit of a request, which is 24 h in this test. Time
// in which pauses of two levels overlap counts once.
func TestExpire_DoesNotCountPausedTime(t *testing.T) {
	t.Parallel()
	const pause = `
INSERT INTO dialing_pauses (level, id, began_at, ends_at)
VALUES ($1, $2, now() - $3::interval, CASE $4 WHEN '' THEN 'infinity'::timestamptz ELSE now() - $4::interval END)`
	type period struct{ level, began, ended string }
	tests := []struct {
		name    string
		dueAgo  string
		pauses  []period
		state   string
		claimed int
	}{
		{name: "no pause", dueAgo: "25 hours", state: "failed"},
		{name: "the pause is longer than the excess", dueAgo: "25 hours",
			pauses: []period{{"workspace", "10 hours", "8 hours"}}, state: "queued", claimed: 1},
		{name: "the pause is shorter than the excess", dueAgo: "27 hours",
			pauses: []period{{"workspace", "10 hours", "8 hours"}}, state: "failed"},
		{name: "two pauses at the same time", dueAgo: "27 hours",
			pauses: []period{{"workspace", "10 hours", "8 hours"}, {"everything", "10 hours", "8 hours"}}, state: "failed"},
		{name: "two pauses one after the other", dueAgo: "27 hours",
			pauses: []period{{"workspace", "10 hours", "8 hours"}, {"agent", "5 hours", "3 hours"}}, state: "queued",
			claimed: 1},
		{name: "the pause ended before the due time", dueAgo: "25 hours",
			pauses: []period{{"workspace", "40 hours", "26 hours"}}, state: "failed"},
		{name: "a pause that has not ended", dueAgo: "72 hours",
			pauses: []period{{"everything", "60 hours", ""}}, state: "queued"},
		{name: "a pause of another workspace", dueAgo: "25 hours",
			pauses: []period{{"another", "10 hours", "1 hours"}}, state: "failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
			enqueue(t, pool, st, r)
			exec(t, pool, "UPDATE dial_queue SET due_at = now() - $1::interval, look_at = now() - interval '1 second'",
				tt.dueAgo)
			for _, p := range tt.pauses {
				level, ids := p.level, map[string]uuid.UUID{"workspace": r.WorkspaceID, "agent": r.AgentID}
				id := ids[level] // the zero UUID if level is everything
				if level == "another" {
					level, id = "workspace", uuid.Must(uuid.NewV7())
				}
				exec(t, pool, pause, level, id, p.began, p.ended)
			}
			for range 2 {
				if _, err := st.Expire(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var state string
			if err := pool.QueryRow(t.Context(), "SELECT state FROM dial_queue").Scan(&state); err != nil {
				t.Fatal(err)
			}
			if state != tt.state {
				t.Errorf("state = %q, want %q", state, tt.state)
			}
			if got := len(claimRequests(t, st, 1)); got != tt.claimed {
				t.Errorf("claimed requests = %d, want %d", got, tt.claimed)
			}
		})
	}
}

// After a long pause, the first claim finds no capacity. The request must not end with
// capacity_timeout immediately.
func TestExpire_CapacityLimitDoesNotCountPausedTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		paused string
		want   int
	}{
		"the pause lasted until now":     {paused: "10 seconds", want: 0},
		"the pause ended two hours ago":  {paused: "2 hours", want: 1},
		"the pause ended an hour before": {paused: "59 minutes", want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, r := store.New(pool, uuid.Must(uuid.NewV7()), store.Timing{
				ClaimLease: time.Minute, QueueLimit: 24 * time.Hour, CapacityLimit: time.Hour,
			}), aRequest(uuid.Must(uuid.NewV7()), 1)
			enqueue(t, pool, st, r)
			exec(t, pool, "UPDATE dial_queue SET due_at = now() - interval '5 hours', look_at = now() - interval '1 second'")
			exec(t, pool, `INSERT INTO dialing_pauses (level, id, began_at, ends_at)
				VALUES ('workspace', $1, now() - interval '6 hours', now() - $2::interval)`, r.WorkspaceID, tt.paused)
			exec(t, pool, `INSERT INTO rate_buckets (scope, version, tokens, no_capacity_at) VALUES ($1, 1, 1, now())`,
				r.WorkspaceID.String())
			ended, err := st.Expire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if ended != tt.want {
				t.Errorf("ended requests = %d, want %d", ended, tt.want)
			}
		})
	}
}

// Autoscaling starts more dialer processes if due requests wait. A pause must not have this effect.
func TestReadDepth_CountsPausedRequestsSeparately(t *testing.T) {
	t.Parallel()
	workspace, other := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	ofAgent, ofSecond, ofOther := aRequest(workspace, 1), aRequest(workspace, 2), aRequest(other, 3)
	for _, tt := range []struct {
		name   string
		scope  dialqueue.PauseScope
		due    int64
		paused int64
	}{
		{name: "everything", scope: dialqueue.PauseScope{Level: dialqueue.PauseEverything}, paused: 3},
		{name: "workspace", scope: dialqueue.PauseScope{Level: dialqueue.PauseWorkspace, ID: workspace}, due: 1, paused: 2},
		{name: "agent", scope: dialqueue.PauseScope{Level: dialqueue.PauseAgent, ID: ofAgent.AgentID}, due: 2, paused: 1},
		{name: "trunk", scope: dialqueue.PauseScope{Level: dialqueue.PauseTrunk, ID: workspace}, due: 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st := newStore(pool)
			enqueue(t, pool, st, ofAgent, ofSecond, ofOther)
			exec(t, pool, knownAgent, ofAgent.AgentID, workspace)
			setDialing(t, st, tt.scope, true, nil)
			if _, err := st.MovePaused(t.Context()); err != nil {
				t.Fatal(err)
			}
			depth, err := store.ReadDepth(t.Context(), pool)
			if err != nil {
				t.Fatal(err)
			}
			if depth.Due != tt.due {
				t.Errorf("depth.Due = %d, want %d", depth.Due, tt.due)
			}
			if depth.Paused != tt.paused {
				t.Errorf("depth.Paused = %d, want %d", depth.Paused, tt.paused)
			}
			if got, want := depth.OldestDueSeconds > 0, tt.due > 0; got != want {
				t.Errorf("depth.OldestDueSeconds = %g, want more than 0: %t", depth.OldestDueSeconds, want)
			}
		})
	}
}

// A claim must not read the rows of paused requests.
func TestClaim_CostDoesNotGrowWithPausedRequests(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	watched, seen := pgtest.Watch(t, pool)
	plain, st := newStore(pool), newStore(watched)
	super := pgtest.Super(t, pool, "dialer")
	workspace, paused, next := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), 0
	limited(t, pool, plain, workspace, 100_000, 100_000)
	agent := aRequest(workspace, 1)
	setDialing(t, plain, dialqueue.PauseScope{Level: dialqueue.PauseWorkspace, ID: paused}, true, nil)
	setDialing(t, plain, dialqueue.PauseScope{Level: dialqueue.PauseAgent, ID: agent.AgentID}, true, nil)
	exec(t, pool, knownAgent, agent.AgentID, workspace)
	pages := func() (claim, look int) {
		for {
			moved, err := plain.MovePaused(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if moved == 0 {
				break
			}
		}
		if _, err := super.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
			t.Fatal(err)
		}
		claim = pagesOf(t, seen, func() {
			for range 20 {
				next++
				enqueue(t, pool, plain, aRequest(workspace, 5_000_000+next))
			}
			claimed, err := st.Claim(t.Context(), ampleCapacity(1), []uuid.UUID{workspace, paused})
			if err != nil {
				t.Fatalf("Claim: %v", err)
			}
			if got := len(claimed.Requests); got != 1 {
				t.Fatalf("claimed requests = %d, want 1", got)
			}
		})
		return claim, pagesOf(t, seen, func() { dueWorkspaces(t, st) })
	}
	few, fewLook := pages()
	insertRequests(t, pool, paused, 1, 20_000, -time.Hour)
	insertRequests(t, pool, workspace, 20_001, 40_000, -time.Hour)
	const ofAgent = "UPDATE dial_queue SET agent_id = $1 WHERE workspace_id = $2 AND claimed_by IS NULL"
	exec(t, pool, ofAgent, agent.AgentID, workspace)
	many, manyLook := pages()
	t.Logf("pages of a claim = %d without paused requests, %d beside 40,000; of a search = %d and %d",
		few, many, fewLook, manyLook)
	if float64(many) > 1.5*float64(few)+10 {
		t.Errorf("pages of a claim beside 40,000 paused requests = %d, want about %d", many, few)
	}
	if float64(manyLook) > 1.5*float64(fewLook)+10 {
		t.Errorf("pages of a search beside 40,000 paused requests = %d, want about %d", manyLook, fewLook)
	}
}

const manyPauses = `
INSERT INTO dialing_pauses (level, id, began_at, ends_at)
SELECT $1, $2, now() - n * interval '1 minute', now() - n * interval '1 minute' + interval '10 seconds'
FROM generate_series(1, $3::integer) n`

// Every process reads the latest pauses several times per second, so the query must be cheap.
func TestLatestPauses_CostDoesNotGrowWithTheNumberOfPauses(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	watched, seen := pgtest.Watch(t, pool)
	plain, st := newStore(pool), newStore(watched)
	open := dialqueue.PauseScope{Level: dialqueue.PauseAgent, ID: uuid.Must(uuid.NewV7())}
	resumed := dialqueue.PauseScope{Level: dialqueue.PauseWorkspace, ID: uuid.Must(uuid.NewV7())}
	setDialing(t, plain, open, true, nil)
	setDialing(t, plain, resumed, true, nil)
	ended := *setDialing(t, plain, resumed, false, nil).SetAt
	super := pgtest.Super(t, pool, "dialer")
	pages := func() int {
		if _, err := super.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
			t.Fatal(err)
		}
		return pagesOf(t, seen, func() {
			found, err := st.LatestPauses(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(found, func(a, b dialqueue.LatestPause) int {
				return strings.Compare(string(a.Level), string(b.Level))
			})
			want := []dialqueue.LatestPause{
				{PauseScope: open, Open: true}, {PauseScope: resumed, EndsAt: ended},
			}
			ignoreEnd := cmp.FilterPath(
				func(p cmp.Path) bool { return p.Index(1).String() == "[0]" && p.Last().String() == ".EndsAt" },
				cmp.Ignore(),
			)
			if diff := cmp.Diff(want, found, ignoreEnd); diff != "" {
				t.Errorf("latest pauses (-want +got):\n%s", diff)
			}
		})
	}
	few := pages()
	exec(t, pool, manyPauses, "agent", open.ID, 1400)
	exec(t, pool, manyPauses, "workspace", resumed.ID, 1400)
	many := pages()
	t.Logf("pages = %d, beside 2,800 periods = %d", few, many)
	if many > few+10 {
		t.Errorf("pages beside 2,800 periods = %d, want about %d", many, few)
	}
}

// After a long pause, many requests are older than the age limit. Claims run one after another, so
// a claim must not read the pauses again for each of these requests.
func TestClaim_ReadsThePausesOncePerDueTime(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	watched, seen := pgtest.Watch(t, pool)
	st, workspace, agent := newStore(watched), uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	super := pgtest.Super(t, pool, "dialer")
	limited(t, pool, st, workspace, 100_000, 100_000)
	exec(t, pool, manyPauses, "workspace", workspace, 3000)
	exec(t, pool, `INSERT INTO dialing_pauses (level, id, began_at, ends_at)
		VALUES ('everything', '00000000-0000-0000-0000-000000000000', now() - interval '30 hours', now())`)
	pages := func(age string) int {
		insertRequests(t, pool, workspace, 1, 400, -time.Second)
		exec(t, pool, "UPDATE dial_queue SET agent_id = $1, due_at = now() - $2::interval", agent, age)
		if _, err := super.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
			t.Fatal(err)
		}
		defer exec(t, pool, "DELETE FROM dial_queue")
		return pagesOf(t, seen, func() {
			claimed, err := st.Claim(t.Context(), ampleCapacity(40), []uuid.UUID{workspace})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(claimed.Requests); got != 40 {
				t.Fatalf("claimed requests = %d, want 40", got)
			}
		})
	}
	recent, old := pages("1 hour"), pages("25 hours")
	t.Logf("pages of a claim of recent requests = %d, of old requests = %d", recent, old)
	if old > recent+300 { // reading the pauses (30 pages) for each of the 40 requests would read 1,200 pages
		t.Errorf("pages of a claim of old requests = %d, want about the %d pages of recent requests", old, recent)
	}
}

// The agent of a paused request is deleted, or its workspace is suspended. MovePaused must then
// make the request due, so that a claim blocks it.
func TestMovePaused_RequestsThatMustBeBlockedBecomeDue(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"the agent is deleted":       "UPDATE agents SET deleted = true",
		"the workspace is suspended": "UPDATE workspaces SET status = 'suspended'",
		"the workspace lost the API": "UPDATE workspaces SET api_enabled = false",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
			enqueue(t, pool, st, r)
			exec(t, pool, knownAgent, r.AgentID, r.WorkspaceID)
			setDialing(t, st, dialqueue.PauseScope{Level: dialqueue.PauseAgent, ID: r.AgentID}, true, nil)
			for range 2 { // the second run must not make the request due again
				if _, err := st.MovePaused(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := countRows(t, pool, "SELECT count(*) FROM dial_queue WHERE look_at = 'infinity'"); got != 1 {
				t.Fatalf("requests set aside = %d, want 1", got)
			}
			// SaveAgent and SaveWorkspace make only a limited number of requests due. This statement makes
			// none due, like SaveAgent for a request beyond that limit.
			exec(t, pool, change)
			if _, err := st.MovePaused(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := claimedIDs(t, st); !sameIDs(got, []dialqueue.Request{r}) {
				t.Errorf("claimed = %v, want the request", got)
			}
		})
	}
}

func TestSaveAgent_DeletionEndsThePause(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
	enqueue(t, pool, st, r)
	exec(t, pool, knownAgent, r.AgentID, r.WorkspaceID)
	scope := dialqueue.PauseScope{Level: dialqueue.PauseAgent, ID: r.AgentID}
	until := time.Now().Add(time.Hour)
	setDialing(t, st, scope, true, &until)
	if _, err := st.MovePaused(t.Context()); err != nil {
		t.Fatal(err)
	}
	agent := dialqueue.Agent{
		AgentID:     r.AgentID,
		WorkspaceID: r.WorkspaceID,
		Version:     2,
		Settings:    []byte("{}"),
		Deleted:     true,
	}
	for range 2 { // the deletion event can arrive twice
		if err := st.ApplyAgent(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
	}
	paused, err := st.PausedScopes(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(paused) != 0 {
		t.Errorf("paused scopes = %v, want none", paused)
	}
	if got := claimedIDs(t, st); !sameIDs(got, []dialqueue.Request{r}) {
		t.Errorf("claimed = %v, want the request", got)
	}
	change := dialqueue.DialingChange{Paused: true, Reason: "r", Actor: dialqueue.Actor{Type: dialqueue.ActorOperator}}
	if _, err := st.SetDialing(t.Context(), scope, change); !errors.Is(err, store.ErrNoAgent) {
		t.Errorf("SetDialing of the deleted agent = %v, want ErrNoAgent", err)
	}
	if got := countRows(t, pool, "SELECT count(*) FROM dialing_pauses WHERE ends_at > now()"); got != 0 {
		t.Errorf("open pauses = %d, want 0", got)
	}
}

func addTrunk(t *testing.T, pool *pgxpool.Pool, name, status string) uuid.UUID {
	t.Helper()
	id := uuid.Must(uuid.NewV7())
	exec(t, pool, `
INSERT INTO trunks (trunk_id, version, name, status, host, port, transport, outbound_proxy, ca_certificates, username,
	register, caller_ids, caller_id_header, number_format, number_prefix, codecs, srtp, session_seconds, channels,
	calls_per_second, priority, inbound_sources)
VALUES ($1, 1, $2, $3, 'sip.example', 5060, 'udp', '', '', '', false, '{}', 'from', 'e164', '', '{pcmu}', 'off', 0,
	10, 10, 1, '{}')`, id, name, status)
	return id
}

// While all active trunks are paused, no call can be dialed. This time does not count towards the
// age limit.
func TestExpire_DoesNotCountTimeInWhichAllTrunksArePaused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		other string // status of the second trunk, which is not paused; empty if there is none
		state string
	}{
		{name: "the only trunk is paused", state: "queued"},
		{name: "the other trunk is disabled", other: "disabled", state: "queued"},
		{name: "another trunk is active", other: "active", state: "failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
			enqueue(t, pool, st, r)
			scope := dialqueue.PauseScope{Level: dialqueue.PauseTrunk, ID: addTrunk(t, pool, "first", "active")}
			if tt.other != "" {
				addTrunk(t, pool, "second", tt.other)
			}
			setDialing(t, st, scope, true, nil)
			record(t, st)
			// These statements simulate that the pause began 30 hours ago and the request was due an hour
			// before that.
			exec(t, pool, "UPDATE dialing_pauses SET began_at = began_at - interval '30 hours'")
			exec(t, pool, "UPDATE dial_queue SET due_at = due_at - interval '31 hours'")
			record(t, st)
			// A third trunk is added and the first trunk is resumed. The time before that still does not
			// count.
			addTrunk(t, pool, "third", "active")
			setDialing(t, st, scope, false, nil)
			record(t, st)
			if _, err := st.Expire(t.Context()); err != nil {
				t.Fatal(err)
			}
			var state string
			if err := pool.QueryRow(t.Context(), "SELECT state FROM dial_queue").Scan(&state); err != nil {
				t.Fatal(err)
			}
			if state != tt.state {
				t.Errorf("state = %q, want %q", state, tt.state)
			}
			if got := countRows(t, pool, "SELECT count(*) FROM dialing_pauses WHERE ends_at > now()"); got != 0 {
				t.Errorf("open pauses = %d, want 0", got)
			}
		})
	}
}

func record(t *testing.T, stores ...*store.Store) {
	t.Helper()
	done := make(chan error)
	for _, st := range stores {
		go func() { done <- st.RecordTrunkPause(t.Context()) }()
	}
	for range stores {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Each replica records the pause, possibly at the same time. A dialer can also die before it
// records the pause.
func TestRecordTrunkPause_PauseRecordedByManyReplicasIsCountedOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st := newStore(pool)
	const recorded = `
SELECT coalesce(extract(epoch FROM paused_time(gen_random_uuid(), gen_random_uuid(), now() - interval '1 hour')),
    0)::integer`
	scope := dialqueue.PauseScope{Level: dialqueue.PauseTrunk, ID: addTrunk(t, pool, "first", "active")}
	record(t, st, st, st)
	if got := countRows(t, pool, "SELECT count(*) FROM dialing_pauses"); got != 0 {
		t.Errorf("periods before the pause = %d, want 0", got)
	}
	setDialing(t, st, scope, true, nil)
	record(t, st, st, st, st)
	exec(t, pool, "UPDATE dialing_pauses SET began_at = began_at - interval '600 seconds'")
	record(t, st, st)
	if got := countRows(t, pool, recorded); got != 600 {
		t.Errorf("paused seconds = %d, want 600", got)
	}
	setDialing(t, st, scope, false, nil)
	record(t, st, st)
	setDialing(t, st, scope, true, nil)
	record(t, st)
	const open = `SELECT count(*) FROM dialing_pauses
		WHERE ends_at > now() AND id = '00000000-0000-0000-0000-000000000000'`
	if got := countRows(t, pool, open); got < 1 {
		t.Errorf("open periods = %d, want at least 1", got)
	}
	exec(t, pool, "DELETE FROM trunks")
	record(t, st)
	if got := countRows(t, pool, open); got != 0 {
		t.Errorf("open periods without a trunk = %d, want 0", got)
	}
	if got := countRows(t, pool, recorded); got < 600 || got > 660 {
		t.Errorf("paused seconds = %d, want about 600", got)
	}
}
