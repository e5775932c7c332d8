package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence.dev/libs/money"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const (
	walletClients = 64
	// walletHold is the credit, in micro-credits, that is held for a call of ten minutes at 0.05 a
	// minute.
	walletHold = 500_000
)

// TestWallet_AcceptsOnlyCallsThatTheCreditCovers lets 64 clients place three times as many calls as
// the credit covers. The services must accept exactly the calls that the credit covers. The
// reconciliation must find no difference after each step.
func TestWallet_AcceptsOnlyCallsThatTheCreditCovers(t *testing.T) {
	system := stack(t)
	s, hooks := system.Stack, system.Hooks
	covered := sharedstack.Trials(100, 10_000)
	w := tenant(t, s, nil, credits(covered))
	crowd := &crowd{w: w, isScheduled: true, accepted: map[string]string{}}
	crowd.placeCalls(t, keys("first", 3*covered))
	if len(crowd.accepted) != covered {
		t.Fatalf("length of crowd.accepted = %d, want %d", len(crowd.accepted), covered)
	}
	if len(crowd.refused) != 2*covered {
		t.Fatalf("length of crowd.refused = %d, want %d", len(crowd.refused), 2*covered)
	}
	awaitBooks(t, w, 0, covered)
	if requests, err := w.Requests(t.Context()); err != nil {
		t.Errorf("Requests: %v", err)
	} else if len(requests) != covered {
		t.Errorf("Requests: length of requests = %d, want %d", len(requests), covered)
	}

	refused := crowd.refused
	half := covered / 2
	crowd.cancelCalls(t, half)
	awaitBooks(t, w, half, covered-half)
	before := len(crowd.accepted)
	crowd.refused = nil
	crowd.placeCalls(t, refused) // the keys are used again, because a refused request does not use up its key
	if took := len(crowd.accepted) - before; took != half {
		t.Errorf("took = %v, want %v", took, half)
	} else if len(crowd.refused) != len(refused)-half {
		t.Errorf("length of crowd.refused = %d, want %d", len(crowd.refused), len(refused)-half)
	}
	awaitBooks(t, w, 0, covered)
	crowd.cancelCalls(t, len(crowd.accepted))
	awaitBooks(t, w, covered, 0)

	spending := tenant(t, s, hooks, credits(sharedstack.Trials(20, 2_000)))
	placeDueCalls(t, s, spending, hooks)
	reconcile(t, s, "workspaces compared, 0 differences")
	corruptLedger(t, s, w)
	reconcile(t, s, "workspace "+w.ID+": wrong_balance: wallet", "workspace "+w.ID+": wrong_balance: funding", "workspaces compared, 2 differences")
	if found, err := w.Differences(t.Context()); err != nil {
		t.Errorf("differences: %v", err)
	} else if len(found) != 2 {
		t.Errorf("differences: length of found = %d, want 2", len(found))
	}
}

// reconcile runs the command that compares the wallet with the ledger and the charges. If there are
// differences, the command must fail and print them.
func reconcile(t *testing.T, s *kit.Stack, want ...string) {
	t.Helper()
	output, err := s.Command(t.Context(), "service", "billing-wallet", "reconcile")
	if (err == nil) != (len(want) == 1) {
		t.Errorf("reconcile = %v", err)
	}
	for _, line := range want {
		if !strings.Contains(output, line) {
			t.Errorf("output of reconcile = %q, want it to contain %q", output, line)
		}
	}
}

// corruptLedger makes the ledger wrong. As the superuser, it adds credit to the workspace without a
// top-up. At the end of the test it removes the credit.
func corruptLedger(t *testing.T, s *kit.Stack, w *kit.Workspace) {
	t.Helper()
	conn := superuser(t, s)
	add := func(ctx context.Context, micro int) {
		const query = `UPDATE billing_wallet.wallets SET wallet_micro = wallet_micro + $2, funding_micro = funding_micro - $2
			WHERE workspace_id = $1`
		did, err := conn.Exec(ctx, query, w.ID, micro)
		if err != nil {
			t.Fatal(err)
		}
		sharedstack.Equal(t, "changed wallets", did.RowsAffected(), 1)
	}
	add(t.Context(), 1)
	t.Cleanup(func() { add(context.Background(), -1) })
}

// placeDueCalls places three times as many calls as the credit covers, due immediately. Each charge
// reduces the balance. The rest of each hold is returned.
func placeDueCalls(t *testing.T, s *kit.Stack, w *kit.Workspace, hooks *kit.Receiver) {
	t.Helper()
	covered := sharedstack.Trials(20, 2_000)
	crowd := &crowd{w: w, accepted: map[string]string{}}
	crowd.placeCalls(t, keys("spend", 3*covered))
	if len(crowd.accepted) < covered {
		t.Errorf("length of crowd.accepted = %d, want at least %d", len(crowd.accepted), covered)
	} else if len(crowd.accepted)+len(crowd.refused) != 3*covered {
		t.Errorf("answered requests = %v, want %v", len(crowd.accepted)+len(crowd.refused), 3*covered)
	}
	v, err := s.Judge(t.Context(), w, hooks, crowd.accepted, float64(covered)*walletHold/1e6, kit.HangTimeout)
	t.Log(v)
	if err != nil {
		t.Errorf("Judge: %v", err)
	} else if v.Err() != nil {
		t.Errorf("v.Err() = %v, want nil", v.Err())
	}
}

func credits(holds int) string { return money.Micro(holds * walletHold).String() }

func keys(name string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return all
}

type crowd struct {
	w *kit.Workspace
	// isScheduled is true if the calls are due in one hour, so that no hold is settled during the
	// test.
	isScheduled bool

	mu       sync.Mutex
	numbers  int
	accepted map[string]string // request id → number
	refused  []string
}

// placeCalls requires 202 or 402 insufficient_credits for each call. A retry can also have status
// 200.
func (c *crowd) placeCalls(t *testing.T, keys []string) {
	t.Helper()
	c.each(keys, func(key string) {
		body := map[string]any{"agent_id": c.w.AgentID, "to": c.number(), "idempotency_key": key}
		if c.isScheduled {
			body["scheduled_for"] = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		}
		status, answer, isRetry := c.postUntilAnswered(t, "/v1/calls", body)
		var response struct {
			ID    string                `json:"id"`
			To    string                `json:"to"`
			Error struct{ Code string } `json:"error"`
		}
		_ = json.Unmarshal(answer, &response)
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case (status == 202 || status == 200 && isRetry) && response.ID != "":
			c.accepted[response.ID] = response.To
		case status == 402 && response.Error.Code == "insufficient_credits":
			c.refused = append(c.refused, key)
		default:
			t.Errorf("POST with key %s: %d %s, want 202 or 402 insufficient_credits", key, status, answer)
		}
	})
}

func (c *crowd) number() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.numbers++
	return number(9_100_000 + c.numbers/80*100 + c.numbers%80)
}

// cancelCalls cancels n accepted calls. A retry can have status 409, because the first attempt can
// have canceled the call request.
func (c *crowd) cancelCalls(t *testing.T, n int) {
	t.Helper()
	ids := slices.Collect(maps.Keys(c.accepted))[:n]
	c.each(ids, func(id string) {
		status, answer, isRetry := c.postUntilAnswered(t, "/v1/call-requests/"+id+"/cancel", nil)
		if status == 409 && isRetry {
			if now, err := c.w.Request(t.Context(), id); err == nil && now.Status == "canceled" {
				return
			}
		}
		if status != 200 {
			t.Errorf("cancel of %s: %d %s", id, status, answer)
		}
	})
	for _, id := range ids {
		delete(c.accepted, id)
	}
}

// postUntilAnswered repeats a POST request while the status is 503, as the API requires. A repeated
// POST /v1/calls has the same idempotency key. isRetry is true if an earlier attempt had status 503
// or no response.
func (c *crowd) postUntilAnswered(t *testing.T, path string, body any) (status int, answer []byte, isRetry bool) {
	t.Helper()
	err := kit.Until(t.Context(), kit.HangTimeout, "POST "+path+" is answered", func() (bool, error) {
		var err error
		status, answer, err = c.w.API.Do(t.Context(), "POST", path, body)
		answered := err == nil && status != 503
		isRetry = isRetry || !answered
		return answered, nil
	})
	if err != nil {
		t.Error(err)
	}
	return status, answer, isRetry
}

func (c *crowd) each(work []string, do func(string)) {
	next := make(chan string)
	var clients sync.WaitGroup
	for range walletClients {
		clients.Go(func() {
			for one := range next {
				do(one)
			}
		})
	}
	for _, one := range work {
		next <- one
	}
	close(next)
	clients.Wait()
}

// awaitBooks waits until the available credit is availableHolds × walletHold and the held credit is
// heldHolds × walletHold. At every read the ledger must have no difference.
func awaitBooks(t *testing.T, w *kit.Workspace, availableHolds, heldHolds int) {
	t.Helper()
	var seen struct{ Spendable, Held, Balance money.Micro }
	want := seen
	want.Spendable, want.Held = money.Micro(availableHolds*walletHold), money.Micro(heldHolds*walletHold)
	want.Balance = want.Spendable + want.Held
	err := kit.Until(t.Context(), kit.HangTimeout, "the credit is as expected and the ledger has no difference",
		func() (bool, error) {
			if differences, err := w.Differences(t.Context()); err != nil || len(differences) > 0 {
				return false, fmt.Errorf("the wallet differs from the ledger or the charges: %v, %v", differences, err)
			}
			err := w.Admin.Into(t.Context(), "GET", "/admin/v1/workspaces/"+w.ID+"/wallet", nil, 200, &seen)
			return seen == want, err
		})
	if err != nil {
		t.Fatalf("%v: %+v, want %+v", err, seen, want)
	}
}
