package sipcarrier_test

import (
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"
	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sipcarrier"
)

// lostServer is the identity of a database server that no longer exists. If the store uses this
// identity, the current server counts as not reconciled with Kafka, so rows of calls can be
// missing.
const lostServer = "a server that is gone"

func optOut(t *testing.T, x *fixture, callbacks sipcarrier.ConversationCallbacks, id uuid.UUID) {
	t.Helper()
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		callbacks.OptedOut("Never call me again.", time.Now())
	}()
	select {
	case <-stored:
	case <-time.After(testkit.Timeout):
		t.Fatal("the opt-out was not acknowledged")
	}
	var stores int
	const read = `SELECT count(*) FROM opt_outs WHERE call_id = $1`
	if err := x.first.QueryRow(t.Context(), read, id).Scan(&stores); err != nil {
		t.Fatal(err)
	}
	if stores != 1 {
		t.Fatalf("stored opt-outs after the acknowledgement = %d, want 1", stores)
	}
}

// The database has the row of the call, so the events of the call must be stored before the
// reconciliation.
func TestEvents_AreStoredBeforeTheReconciliationIfTheCallIsStored(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	begun, over := make(chan sipcarrier.ConversationCallbacks, 1), make(chan struct{})
	x.conversations = callbackConversations{begun}
	x.far.On("34", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Answer(audio)
		<-over
		c.Request(sipmsg.BYE, "")
	})
	p := x.begin(loopback)
	id := dial(t, p, "34", carrier.Answered)
	p.store.UseServer(lostServer)
	optOut(t, x, <-begun, id)
	close(over)
	x.awaitStatus(id, "completed")
}

// The database has lost the rows of the call and of its leg. The opt-out must be stored before the
// reconciliation. The end of the call must be stored after the reconciliation.
func TestOptOut_IsStoredBeforeTheReconciliationIfTheCallIsMissing(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	begun, over := make(chan sipcarrier.ConversationCallbacks, 1), make(chan struct{})
	x.conversations = callbackConversations{begun}
	x.far.On("35", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Answer(audio)
		<-over
		c.Request(sipmsg.BYE, "")
	})
	p := x.begin(loopback)
	id := uuid.Must(uuid.NewV7())
	o := carrier.Originate{CallID: id, WorkspaceID: id, From: "+14155550100", To: "+14155550235"}
	if _, err := p.Originate(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	x.awaitStatus(id, "in_progress")
	p.store.UseServer(lostServer)
	exec(t, x, "DELETE FROM sip_legs")
	exec(t, x, "DELETE FROM calls")
	optOut(t, x, <-begun, id)
	close(over)
	testkit.Until(t, "the end waits for the reconciliation", func() bool { return x.waits.Load() > 0 })
	if err := x.insertFenced(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	p.store.UseServer("")
	x.awaitStatus(id, "completed")
}

// After a failover, the events in the leg's queue wait for the reconciliation. The opt-out must not
// wait for them.
func TestOptOut_DoesNotWaitForTheQueuedEventsOfTheCall(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	begun := make(chan sipcarrier.ConversationCallbacks, 1)
	x.conversations = callbackConversations{begun}
	x.far.On("36", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Answer(audio)
	})
	p := x.begin(loopback)
	id := uuid.Must(uuid.NewV7())
	o := carrier.Originate{CallID: id, WorkspaceID: id, From: "+14155550100", To: "+14155550236"}
	if _, err := p.Originate(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	x.awaitStatus(id, "in_progress")
	p.store.UseServer(lostServer)
	exec(t, x, "DELETE FROM sip_legs")
	exec(t, x, "DELETE FROM calls")
	p.Refresh()
	testkit.Until(t, "the earlier events wait for the reconciliation", func() bool { return x.waits.Load() > 0 })
	optOut(t, x, <-begun, id)
}

// The leg must be stored before the reconciliation, because the reconciliation first settles the
// intents of calls with a live leg.
func TestRefresh_StoresTheLegBeforeTheReconciliation(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.far.On("39", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Answer(audio)
	})
	p := x.begin(loopback)
	id := dial(t, p, "39", carrier.Answered)
	p.store.UseServer(lostServer)
	exec(t, x, "DELETE FROM sip_legs")
	exec(t, x, "DELETE FROM calls")
	p.Refresh()
	testkit.Until(t, "the leg is stored", func() bool { return x.legs(id) == 1 })
}

// The database has lost the rows of the call and of its leg. The opt-out must still be stored. At
// the end of the call, the row of the call must be inserted again.
func TestOptOut_IsStoredIfTheInboundCallIsMissingInTheDatabase(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]string{"not reconciled": lostServer, "reconciled": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			begun := make(chan sipcarrier.ConversationCallbacks, 1)
			x.conversations = callbackConversations{begun}
			p := x.begin(loopback)
			dialog, id := ring(t, p)
			if err := p.Answer(t.Context(), id); err != nil {
				t.Fatalf("Answer: %v", err)
			}
			x.awaitStatus(id, "in_progress")
			p.store.UseServer(server)
			exec(t, x, "DELETE FROM sip_legs")
			exec(t, x, "DELETE FROM calls")
			optOut(t, x, <-begun, id)
			if err := dialog.Hangup(t.Context(), callstate.NormalClearing); err != nil {
				t.Fatalf("Hangup: %v", err)
			}
			x.awaitStatus(id, "completed")
		})
	}
}

// The called number is no longer assigned to the workspace, so the row of the call cannot be
// inserted again.
func TestOptOut_IsStoredIfTheCalledNumberIsNoLongerAssigned(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	begun := make(chan sipcarrier.ConversationCallbacks, 1)
	x.conversations = callbackConversations{begun}
	p := x.begin(loopback)
	dialog, id := ring(t, p)
	if err := p.Answer(t.Context(), id); err != nil {
		t.Fatalf("Answer: %v", err)
	}
	x.awaitStatus(id, "in_progress")
	var workspace string
	const read = "SELECT workspace_id::text FROM calls WHERE call_id = $1"
	if err := x.first.QueryRow(t.Context(), read, id).Scan(&workspace); err != nil {
		t.Fatal(err)
	}
	exec(t, x, "DELETE FROM sip_legs")
	exec(t, x, "DELETE FROM calls")
	exec(t, x, "DELETE FROM numbers")
	optOut(t, x, <-begun, id)
	var got [2]string
	const stored = "SELECT workspace_id::text, phone_e164 FROM opt_outs WHERE call_id = $1"
	if err := x.first.QueryRow(t.Context(), stored, id).Scan(&got[0], &got[1]); err != nil {
		t.Fatal(err)
	}
	if want := [2]string{workspace, "+14155550100"}; got != want {
		t.Errorf("workspace and number of the opt-out = %v, want %v", got, want)
	}
	if err := dialog.Hangup(t.Context(), callstate.NormalClearing); err != nil {
		t.Fatalf("Hangup: %v", err)
	}
	testkit.Until(t, "the end of the leg is stored", func() bool { return p.Live() == 0 })
}

func TestInboundCall_RingsBeforeTheReconciliation(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	p := x.begin(loopback)
	p.store.UseServer(lostServer)
	dialog, id := ring(t, p)
	x.awaitStatus(id, "ringing")
	if err := dialog.Hangup(t.Context(), callstate.OriginatorCancel); err != nil {
		t.Fatalf("Hangup: %v", err)
	}
	x.awaitStatus(id, "canceled")
}
