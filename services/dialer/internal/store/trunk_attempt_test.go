package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/store"
)

func TestDeleteRefused_KeepsTheRowOfTheAttempt(t *testing.T) {
	t.Parallel()
	pool := newLegPool(t)
	j := store.NewLegs(pool, pool, uuid.New(), legLease)
	offered := store.Leg{
		CallID: uuid.Must(uuid.NewV7()), TrunkID: uuid.New(), From: "+14155550100", To: "+14155550101",
	}
	offered.Attempt = store.TrunkAttempt{ID: uuid.Must(uuid.NewV7()), Trunk: "unresolved", SIPCallID: "one\x00"}
	unsent := store.Refusal{
		At: *newTime(), Cause: callstate.NetworkOutOfOrder, ByUs: true, Answer: store.Answer{Error: "not sent: no such host"},
	}
	if err := j.DeleteRefused(t.Context(), offered, unsent); err != nil {
		t.Fatal(err)
	}
	offered.TrunkID = uuid.New()
	offered.Attempt = store.TrunkAttempt{ID: uuid.Must(uuid.NewV7()), Trunk: "full", SIPCallID: "two"}
	if err := j.StoreOutbound(t.Context(), offered); err != nil {
		t.Fatal(err)
	}
	refused := store.Refusal{
		At: *newTime(), Cause: callstate.SwitchCongestion, Answer: store.Answer{Status: 503, Reason: strings.Repeat("é",
			501)},
	}
	for range 2 { // the second run repeats a commit whose response was lost
		if err := j.DeleteRefused(t.Context(), offered, refused); err != nil {
			t.Fatal(err)
		}
		refused.Answer.Status = 500 // only the first refusal must be stored
	}
	type row struct {
		Trunk, SIPCallID, Reason, Error string
		Status                          *int
		Ended                           bool
	}
	rows, err := pool.Query(t.Context(), `SELECT trunk, sip_call_id, sip_reason, error, sip_status, ended_at IS NOT NULL
		FROM sip_attempts WHERE call_id = $1 ORDER BY attempt_id`, offered.CallID)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []row
	for rows.Next() {
		var one row
		if err := rows.Scan(&one.Trunk, &one.SIPCallID, &one.Reason, &one.Error, &one.Status, &one.Ended); err != nil {
			t.Fatal(err)
		}
		got = append(got, one)
	}
	status := 503
	want := []row{
		{Trunk: "unresolved", SIPCallID: "one", Error: "not sent: no such host", Ended: true},
		{Trunk: "full", SIPCallID: "two", Reason: strings.Repeat("é", 500), Status: &status, Ended: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

func TestEndGuard_StoresTheEndOfTheAttempt(t *testing.T) {
	t.Parallel()
	pool := newLegPool(t)
	j := store.NewLegs(pool, pool, uuid.New(), legLease)
	for _, row := range []struct {
		name     string
		answered bool
		status   int
		want     int
	}{
		{name: "refused with 486", status: 486, want: 486},
		{name: "no response", status: 0, want: 0},
		{name: "answered, and the owner is dead", answered: true, status: 0, want: 200},
	} {
		t.Run(row.name, func(t *testing.T) {
			id := dial(t, j)
			if row.answered {
				checkGuard(t, pool, "the answer", j.AnswerGuard(id, time.Now()), nil)
			}
			checkGuard(t, pool, "the end", j.EndGuard(id, store.End{
				At: time.Now(), Cause: callstate.Unspecified, Answer: store.Answer{Status: row.status, Reason: "R"},
			}), nil)
			var status *int
			var reason, cause string
			err := pool.QueryRow(t.Context(), "SELECT sip_status, sip_reason, cause FROM sip_attempts WHERE call_id = $1", id).
				Scan(&status, &reason, &cause)
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			if status != nil {
				got = *status
			}
			if got != row.want {
				t.Errorf("SIP status = %d, want %d", got, row.want)
			}
			if reason != "R" {
				t.Errorf("reason = %q, want %q", reason, "R")
			}
			if want := string(callstate.Unspecified); cause != want {
				t.Errorf("cause = %q, want %q", cause, want)
			}
		})
	}
}
