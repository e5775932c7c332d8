package checks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/contacts-compliance/internal/checks"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

func chains(t testing.TB) *consentchain.Keys {
	t.Helper()
	keys, err := consentchain.NewKeys(nil, "test")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

type fixture struct {
	pool      *pgxpool.Pool
	store     *store.Store
	checks    *checks.Checks
	workspace uuid.UUID
}

func open(t *testing.T) fixture {
	t.Helper()
	pool := pgtest.New(t, "contacts_compliance", outbox.Migrations, inbox.Migrations,
		pg.Migrations{Name: "contacts_compliance", FS: store.Migrations})
	st := store.New(pool, chains(t))
	packs, err := countryrules.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	h := fixture{pool: pool, store: st, checks: checks.New(st, packs, prometheus.NewRegistry()),
		workspace: uuid.Must(uuid.NewV7())}
	h.policy(t, `{"window":{"start":"00:00","end":"24:00"}}`)
	return h
}

// policyVersion is the version of the last policy. Each further policy must have a higher version.
var policyVersion atomic.Int64

func (h fixture) policy(t *testing.T, text string) {
	t.Helper()
	change := store.PolicyChange{
		WorkspaceID: h.workspace, JSON: json.RawMessage(text), Operator: "ann", SetInVersion: policyVersion.Add(1),
	}
	if err := h.store.ApplyPolicy(t.Context(), change, h.checks.Packs()); err != nil {
		t.Fatalf("ApplyPolicy: %v", err)
	}
}

func (h fixture) request(number phone.Number, variables string) checks.PreCheckRequest {
	return checks.PreCheckRequest{
		Target:    store.Target{WorkspaceID: h.workspace, CallRequestID: uuid.Must(uuid.NewV7()), Number: number},
		Variables: json.RawMessage(variables),
	}
}

func (h fixture) count(t *testing.T, sql string, args ...any) int {
	t.Helper()
	var n int
	if err := h.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (h fixture) change(t *testing.T, number phone.Number, kind contacts.Kind) contacts.Contact {
	t.Helper()
	c, err := h.store.Record(t.Context(), contacts.Change{WorkspaceID: h.workspace, Number: number, Kind: kind,
		Source: "test", Actor: "test"}, store.CreateUnknown)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func code(err error) string {
	var refusal *apierr.Error
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return fmt.Sprintf("%v", err)
}

const number = phone.Number("+15005550001")

func TestPreCheck_RepeatedRequestReturnsTheStoredResult(t *testing.T) {
	t.Parallel()
	h := open(t)
	req := h.request(number, `{"a":1,"b":null}`)
	first, err := h.checks.PreCheck(t.Context(), req)
	if err != nil {
		t.Fatalf("first: PreCheck: %v", err)
	}
	if got := string(first.Variables.Encode()); got != `{"a":1}` {
		t.Fatalf("first: first.Variables.Encode() = %q, want %q", got, `{"a":1}`)
	}
	if _, err := h.checks.PreCheck(t.Context(), h.request(number, `{"a":2,"c":3}`)); err != nil {
		t.Fatal(err)
	}
	again, err := h.checks.PreCheck(t.Context(), req)
	if err != nil {
		t.Fatalf("replay: error = %v", err)
	}
	if again.ContactID != first.ContactID {
		t.Errorf("replay: again.ContactID = %v, want %v", again.ContactID, first.ContactID)
	}
	if got := string(again.Variables.Encode()); got != `{"a":1}` {
		t.Errorf("replay: again.Variables.Encode() = %v, want %v", got, `{"a":1}`)
	}
	if !again.ScheduledFor.Equal(first.ScheduledFor) {
		t.Errorf("replay: again.ScheduledFor = %v, want %v", again.ScheduledFor, first.ScheduledFor)
	}
	c, err := h.store.ByNumber(t.Context(), h.workspace, number)
	if err != nil {
		t.Errorf("ByNumber: %v", err)
	} else if got := string(c.Variables.Encode()); got != `{"a":2,"c":3}` {
		t.Errorf("c.Variables.Encode() = %q, want %q", got, `{"a":2,"c":3}`)
	}
	if n := h.count(t, "SELECT count(*) FROM decisions WHERE call_request_id = $1", req.CallRequestID); n != 1 {
		t.Errorf("decisions of the request = %d, want 1", n)
	}
}

func TestPreCheck_ConcurrentRepeatsOfOneRequestMergeItsVariablesOnce(t *testing.T) {
	t.Parallel()
	h := open(t)
	req := h.request(number, `{"a":1}`)
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if _, err := h.checks.PreCheck(t.Context(), req); err != nil {
				t.Errorf("PreCheck: %v", err)
			}
		})
	}
	all.Wait()
	if n := h.count(t, "SELECT count(*) FROM contacts"); n != 1 {
		t.Errorf("contacts = %d, want 1", n)
	}
	if n := h.count(t, "SELECT count(*) FROM pre_checks"); n != 1 {
		t.Errorf("pre_checks = %d, want 1", n)
	}
	if n := h.count(t, "SELECT count(*) FROM decisions"); n != 1 {
		t.Errorf("decisions = %d, want 1", n)
	}
	if n := h.count(t, "SELECT sum(variables_revision)::int FROM contacts"); n != 0 {
		t.Errorf("merges after the creation of the contact = %d, want 0", n)
	}
}

func TestPreCheck_ConcurrentRequestsForANewNumberStoreAllVariables(t *testing.T) {
	t.Parallel()
	h := open(t)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := h.checks.PreCheck(t.Context(), h.request(number, fmt.Sprintf(`{"k%d":1}`, i))); err != nil {
				t.Errorf("PreCheck: %v", err)
			}
		})
	}
	all.Wait()
	c, err := h.store.ByNumber(t.Context(), h.workspace, number)
	if err != nil {
		t.Errorf("ByNumber: %v", err)
	} else if len(c.Variables) != 20 {
		t.Errorf("length of c.Variables = %d, want 20", len(c.Variables))
	}
	if n := h.count(t, "SELECT count(*) FROM contacts"); n != 1 {
		t.Errorf("contacts = %d, want 1", n)
	}
}

func TestPreCheck_WithoutVariablesDoesNotUpdateTheContact(t *testing.T) {
	t.Parallel()
	h := open(t)
	if _, err := h.checks.PreCheck(t.Context(), h.request(number, `{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	before, _ := h.store.ByNumber(t.Context(), h.workspace, number)
	for _, variables := range []string{"", "{}"} {
		got, err := h.checks.PreCheck(t.Context(), h.request(number, variables))
		if err != nil {
			t.Fatalf("error = %v", err)
		}
		if got.ContactID != before.ID {
			t.Errorf("got.ContactID = %v, want %v", got.ContactID, before.ID)
		}
		if got := string(got.Variables.Encode()); got != `{"a":1}` {
			t.Errorf("got.Variables.Encode() = %v, want %v", got, `{"a":1}`)
		}
	}
	if after, _ := h.store.ByNumber(t.Context(), h.workspace, number); !after.UpdatedAt.Equal(before.UpdatedAt) {
		t.Error("updated_at changed, want it unchanged")
	}
}

func TestPreCheck_RefusalStoresOnlyTheDecision(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.policy(t, `null`) // the gates refuse every hour, because the number has no known time zone
	if _, err := h.checks.PreCheck(t.Context(), h.request(number, `{"a":1}`)); code(err) != "outside_calling_hours" {
		t.Fatalf("err = %v, want outside_calling_hours", err)
	}
	if n := h.count(t, "SELECT count(*) FROM contacts"); n != 0 {
		t.Errorf("contacts = %d, want none", n)
	}
	if n := h.count(t,
		"SELECT count(*) FROM decisions WHERE result = 'closed' AND rule = 'zone_unknown' AND policy_version = 2"); n != 1 {
		t.Errorf("stored refusals with rule and policy = %d, want 1", n)
	}
	known := h.change(t, "+15005550002", contacts.OptOut)
	if _, err := h.checks.PreCheck(t.Context(), h.request(known.Number, `{"a":1}`)); code(err) != "recipient_dnd" {
		t.Fatalf("err = %v, want recipient_dnd", err)
	}
	if c, err := h.store.ByID(t.Context(), h.workspace, known.ID); err != nil {
		t.Errorf("ByID: %v", err)
	} else if len(c.Variables) != 0 {
		t.Errorf("ByID: c.Variables = %v, want none; c.Variables.Encode() = %s", c.Variables, c.Variables.Encode())
	}
}

func TestPreCheck_StoresTheDecisionOfARefusedDestination(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		number       phone.Number
		destinations []string
	}{
		{name: "a premium number", number: "+19005550101"},
		{name: "outside of the destinations", number: "+493012345678", destinations: []string{"+1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			h.change(t, tt.number, contacts.OptOut) // the destination must be reported before this opt-out
			req := h.request(tt.number, "")
			req.NamedContact = uuid.Must(uuid.NewV7())
			req.Destinations = &tt.destinations
			if _, err := h.checks.PreCheck(t.Context(), req); code(err) != "destination_not_allowed" {
				t.Errorf("PreCheck = %v, want destination_not_allowed", err)
			}
			if got, err := h.checks.Check(t.Context(), req.Target, false); err != nil || got.Result != gate.Denied {
				t.Errorf("Check = %v, %v, want a denied result", got, err)
			}
			const stored = `SELECT count(*) FROM decisions WHERE call_request_id = $1 AND result = 'closed'
				AND rule = 'destination' AND code = 'destination_not_allowed'
				    AND gates::text LIKE '%"destination","result":"failed"%'`
			if got := h.count(t, stored, req.CallRequestID); got != 2 {
				t.Errorf("stored decisions = %d, want 2", got)
			}
		})
	}
}

func TestPreCheck_ResultOfARefusedRequestIsNotReused(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.change(t, number, contacts.OptOut)
	req := h.request(number, "")
	if _, err := h.checks.PreCheck(t.Context(), req); code(err) != "recipient_dnd" {
		t.Fatalf("err = %v, want recipient_dnd", err)
	}
	h.change(t, number, contacts.OptOutRemoved)
	if _, err := h.checks.PreCheck(t.Context(), req); err != nil {
		t.Errorf("after the opt-out was removed: %v", err)
	}
}

func TestPreCheck_ReportsRefusalsInTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.policy(t, `null`)
	other := h.change(t, "+15005550009", contacts.OptOutRemoved)
	h.change(t, number, contacts.ConsentWithdrawn)
	h.change(t, number, contacts.OptOut)
	expect := func(what string, req checks.PreCheckRequest, want string) {
		t.Helper()
		if _, err := h.checks.PreCheck(t.Context(), req); code(err) != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	req := h.request(number, "")
	req.NamedContact = uuid.Must(uuid.NewV7())
	expect("an unknown contact", req, "invalid_contact")
	req.NamedContact = other.ID
	expect("a contact with another number", req, "contact_phone_mismatch")
	req.NamedContact = uuid.Nil
	expect("opted out and withdrawn", req, "recipient_dnd")
	h.change(t, number, contacts.OptOutRemoved)
	expect("withdrawn, and its zone unknown", req, "consent_withdrawn")
	h.change(t, number, contacts.ConsentGranted)
	expect("its zone unknown", req, "outside_calling_hours")
	h.policy(t, `{"window":{"start":"00:00","end":"24:00"}}`)
	expect("every gate allows", req, "<nil>")
	expect("variables that are not an object", h.request(number, `[]`), "validation_error")
	foreignRequest := h.request(number, "")
	foreignRequest.NamedContact, foreignRequest.WorkspaceID = other.ID, uuid.Must(uuid.NewV7())
	expect("another workspace's contact", foreignRequest, "invalid_contact")
}

func TestPreCheck_ReturnsTheEarliestPermittedTime(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.policy(t, `{"window":{"start":"09:00","end":"20:00"},"timezone":"UTC"}`)
	tomorrow := time.Now().UTC().AddDate(0, 0, 2).Truncate(24 * time.Hour)

	req := h.request(number, "")
	req.At = tomorrow.Add(12 * time.Hour)
	if got, err := h.checks.PreCheck(t.Context(), req); err != nil {
		t.Errorf("in the window: PreCheck: %v", err)
	} else if !got.ScheduledFor.Equal(req.At) {
		t.Errorf("in the window: got.ScheduledFor = %v, want %v", got.ScheduledFor, req.At)
	}
	req = h.request(number, "")
	req.At = tomorrow.Add(20 * time.Hour)
	if _, err := h.checks.PreCheck(t.Context(), req); code(err) != "outside_calling_hours" {
		t.Errorf("at the end of the window: %v", err)
	}
	req.DeferIfClosed = true
	if got, err := h.checks.PreCheck(t.Context(), req); err != nil {
		t.Errorf("deferred: PreCheck: %v", err)
	} else if !got.ScheduledFor.Equal(tomorrow.Add(33 * time.Hour)) {
		t.Errorf("deferred: got.ScheduledFor = %v, want %v", got.ScheduledFor, tomorrow.Add(33*time.Hour))
	}
	h.policy(t, `{"window":{"start":"00:00","end":"24:00"}}`)
	past := h.request(number, "")
	past.At = time.Unix(0, 0)
	var before, after time.Time
	now := func(into *time.Time) {
		t.Helper()
		if err := h.pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	now(&before)
	got, err := h.checks.PreCheck(t.Context(), past)
	if err != nil {
		t.Fatal(err)
	}
	now(&after)
	if got.ScheduledFor.Before(before) {
		t.Errorf("in the past: scheduled for %v, want at least %v", got.ScheduledFor, before)
	}
	if got.ScheduledFor.After(after) {
		t.Errorf("in the past: scheduled for %v, want at most %v", got.ScheduledFor, after)
	}
}

func TestCheck_UsesEveryChangeCommittedBeforeTheCheck(t *testing.T) {
	t.Parallel()
	h := open(t)
	req := h.request(number, "")
	if _, err := h.checks.PreCheck(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	expect := func(want gate.Result, code string) {
		t.Helper()
		v, err := h.checks.Check(t.Context(), req.Target, false)
		if err != nil {
			t.Fatalf("Check: error = %v", err)
		}
		if v.Result != want {
			t.Errorf("Check: v.Result = %v, want %v", v.Result, want)
		}
		if v.Code != code {
			t.Errorf("Check: v.Code = %v, want %v", v.Code, code)
		}
	}
	expect(gate.Open, "")
	h.change(t, number, contacts.OptOut)
	expect(gate.Denied, "recipient_dnd")
	h.change(t, number, contacts.OptOutRemoved)
	h.change(t, number, contacts.ConsentWithdrawn)
	expect(gate.Denied, "consent_withdrawn")
	h.change(t, number, contacts.ConsentGranted)
	h.policy(t, `null`)
	expect(gate.Denied, "outside_calling_hours")
	if n := h.count(t, "SELECT count(*) FROM decisions WHERE kind = 'dial' AND call_request_id = $1",
		req.CallRequestID); n != 4 {
		t.Errorf("decisions at dial time = %d, want 4", n)
	}
}

func TestCheck_ReturnsAnErrorWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	h := open(t)
	req := h.request(number, "")
	h.pool.Close()
	if _, err := h.checks.Check(context.WithoutCancel(t.Context()), req.Target, true); err == nil {
		t.Error("Check without a database = nil, want an error")
	} else if !pg.IsDown(err) {
		t.Error("Check without a database: pg.IsDown(err) = false, want true")
	}
}

func TestCheck_ConcurrentChecksDoNotExceedTheFrequencyCap(t *testing.T) {
	t.Parallel()
	h := open(t)
	const florida, cap = phone.Number("+13055551234"), 3
	h.change(t, florida, contacts.ConsentGranted)
	h.policy(t, `{"packs":["us"],"window":{"start":"00:00","end":"24:00"},"override":{"reason":"the test runs at night"}}`)
	asks := make([]store.Target, 24)
	for i := range asks {
		asks[i] = h.request(florida, "").Target
	}
	var through atomic.Int32
	var all sync.WaitGroup
	for _, q := range asks {
		all.Go(func() {
			v, err := h.checks.Check(t.Context(), q, false)
			switch {
			case err != nil:
				t.Errorf("Check: %v", err)
			case v.Result == gate.Open:
				through.Add(1)
			case v.Rule != gate.RuleFrequency || v.Code != gate.CodeOutsideHours:
				t.Errorf("Check = %+v, want the frequency cap", v)
			}
		})
	}
	all.Wait()
	if n := through.Load(); n != cap {
		t.Errorf("allowed %d of %d, want %d", n, len(asks), cap)
	}
	if n := h.count(t, "SELECT count(*) FROM decisions WHERE kind = 'dial'"); n != len(asks) {
		t.Errorf("decisions = %d, want one for each request", n)
	}
	again := h.request(florida, "")
	if _, err := h.checks.PreCheck(t.Context(), again); code(err) != "outside_calling_hours" {
		t.Errorf("PreCheck of one more = %v, want outside_calling_hours", err)
	}
	// An allowed request can be checked again, because the cap does not count the request's own
	// decisions.
	for _, q := range asks {
		if n := h.count(t, "SELECT count(*) FROM decisions WHERE call_request_id = $1 AND result = 'open'",
			q.CallRequestID); n > 0 {
			if v, err := h.checks.Check(t.Context(), q, false); err != nil {
				t.Errorf("repeated: Check: %v", err)
			} else if v.Result != gate.Open {
				t.Errorf("repeated: v.Result = %v, want %v", v.Result, gate.Open)
			}
		}
	}
	other := h
	other.workspace = uuid.Must(uuid.NewV7())
	other.change(t, florida, contacts.ConsentGranted)
	other.policy(t,
		`{"packs":["us"],"window":{"start":"00:00","end":"24:00"},"override":{"reason":"the test runs at night"}}`)
	if v, err := other.checks.Check(t.Context(), other.request(florida, "").Target, false); err != nil {
		t.Errorf("another workspace: Check: %v", err)
	} else if v.Result != gate.Open {
		t.Errorf("another workspace: v.Result = %v, want %v", v.Result, gate.Open)
	}
}
