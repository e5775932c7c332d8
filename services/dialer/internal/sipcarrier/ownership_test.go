package sipcarrier_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/replicas"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/sipcarrier"
	"ringfence.dev/services/dialer/internal/trunks"
)

func dial(t *testing.T, p *process, suffix string, until carrier.Kind) uuid.UUID {
	t.Helper()
	o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+141555502" + suffix}
	if _, err := p.Originate(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	news(t, p, o.CallID, until)
	return o.CallID
}

func news(t *testing.T, p *process, id uuid.UUID, kind carrier.Kind) carrier.Event {
	t.Helper()
	for after, begun := int64(0), time.Now(); time.Since(begun) < testkit.Timeout; {
		batch, err := p.Events(t.Context(), after, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range batch.Events {
			if after = one.Seq; one.CallID == id && one.Kind == kind {
				return one
			}
		}
	}
	t.Fatalf("no event of kind %s", kind)
	return carrier.Event{}
}

// The process that took over the leg may be unable to reach the trunk. So the old owner must also
// send a BYE.
func TestRun_HangsUpLegsThatAnotherProcessTookOver(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	ended := make(chan struct{})
	x.far.On("21", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Answer(audio)
		c.Hangup()
		close(ended)
	})
	p := x.begin(loopback)
	id := dial(t, p, "21", carrier.Answered)
	const takeOver = "UPDATE sip_legs SET owner = $1, ended_at = now(), cause = 'unspecified' WHERE call_id = $2"
	if _, err := x.first.Exec(t.Context(), takeOver, uuid.New(), id); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(testkit.Timeout):
		t.Fatal("the trunk received no BYE")
	}
}

// The drain limit is zero. A ringing call must be canceled, and an answered call must end as
// failed.
func TestRun_HangsUpLiveCallsWhenItStops(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		script func(*siptest.Call)
		until  carrier.Kind
		cause  callstate.Cause
		status callstate.Status
	}{
		{
			name: "ringing", until: carrier.Ringing, cause: callstate.OriginatorCancel, status: callstate.Canceled,
			script: func(c *siptest.Call) {
				c.Respond(180, "")
				c.Canceled()
			},
		},
		{
			name: "answered", until: carrier.Answered, cause: callstate.NormalTemporaryFailure, status: callstate.Failed,
			script: func(c *siptest.Call) {
				c.Respond(180, "")
				c.Answer(audio)
				c.Hangup()
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			x.far.On("33", tt.script)
			p := x.begin(loopback)
			id := dial(t, p, "33", tt.until)
			p.end()
			if got := news(t, p, id, carrier.Ended).Cause; got != tt.cause {
				t.Errorf("cause = %q, want %q", got, tt.cause)
			}
			var status callstate.Status
			err := x.first.QueryRow(t.Context(), "SELECT status FROM calls WHERE call_id = $1", id).Scan(&status)
			if err != nil {
				t.Fatal(err)
			}
			if status != tt.status {
				t.Errorf("status = %q, want %q", status, tt.status)
			}
		})
	}
}

type callbackConversations struct {
	callbacks chan sipcarrier.ConversationCallbacks
}

func (t callbackConversations) Begin(context.Context, uuid.UUID, trunks.Trunk) (sipcarrier.Conversation, error) {
	return callbackConversation{callbacks: t.callbacks}, nil
}

type callbackConversation struct {
	fakeConversation
	callbacks chan sipcarrier.ConversationCallbacks
}

func (t callbackConversation) Answer(_ []byte, callbacks sipcarrier.ConversationCallbacks) error {
	t.callbacks <- callbacks
	return nil
}

func (t callbackConversation) Begin(callbacks sipcarrier.ConversationCallbacks) {
	t.callbacks <- callbacks
}

// During a call, the heartbeat of its process is late, so another process takes over the call.
func TestRun_ProcessThatLostALegStoresOnlyItsOptOut(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	answers := make(chan sipcarrier.ConversationCallbacks, 1)
	x.conversations = callbackConversations{answers}
	x.far.On("26", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Answer(audio)
		c.Hangup()
	})
	first := x.begin(loopback)
	id := dial(t, first, "26", carrier.Answered)
	callbacks := <-answers
	var owner uuid.UUID
	err := x.first.QueryRow(t.Context(), "SELECT owner FROM sip_legs WHERE call_id = $1", id).Scan(&owner)
	if err != nil {
		t.Fatal(err)
	}
	late, err := x.first.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.Background()) }()
	if _, err := late.Exec(t.Context(), "SELECT FROM sip_leg_owners WHERE owner = $1 FOR UPDATE", owner); err != nil {
		t.Fatal(err)
	}
	x.begin(loopback)
	testkit.Until(t, "the first process has hung up", func() bool { return first.Live() == 0 })
	callbacks.OptedOut("Never call me again.", time.Now())

	var status, code string
	var turns, optOuts int
	const read = `SELECT status, error_code, json_array_length(turns::json), (SELECT count(*) FROM opt_outs)
		FROM calls WHERE call_id = $1`
	testkit.NoError(t, func() error {
		err := x.first.QueryRow(t.Context(), read, id).Scan(&status, &code, &turns, &optOuts)
		if err == nil && status == "in_progress" {
			err = errors.New("the call has not ended")
		}
		return err
	})
	if status != "failed" {
		t.Errorf("status = %s, want failed", status)
	}
	if code != callstate.CodeDialStateUnknown {
		t.Errorf("error code = %s, want %s", code, callstate.CodeDialStateUnknown)
	}
	if turns != 0 {
		t.Errorf("turns = %d, want 0", turns)
	}
	if optOuts != 1 {
		t.Errorf("opt-outs = %d, want 1", optOuts)
	}
	batch, err := x.applied.after(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []carrier.Kind
	for _, e := range batch.Events {
		if e.CallID == id && e.Kind != carrier.OptedOut {
			kinds = append(kinds, e.Kind)
		}
	}
	want := []carrier.Kind{carrier.Accepted, carrier.Ringing, carrier.Answered, carrier.Ended}
	if !slices.Equal(kinds, want) {
		t.Errorf("events = %v, want %v", kinds, want)
	}
}

// The new database server is a standby that lacks the newest rows. Refresh must restore the row of
// the call, its leg and its answer.
func TestRefresh_RestoresAConversationAfterAFailover(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	over := make(chan struct{})
	x.far.On("28", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Answer(audio)
		<-over
		c.Request(sipmsg.BYE, "")
	})
	p := x.begin(loopback)
	id := dial(t, p, "28", carrier.Answered)
	for _, sql := range []string{
		"DELETE FROM sip_legs",
		"UPDATE calls SET status = 'fenced', dialed_at = NULL, ringing_at = NULL, answered_at = NULL, version = 0",
	} {
		if _, err := x.first.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	known, err := p.Find(t.Context(), id)
	if err != nil {
		t.Errorf("Find = %v, want the call to be known", err)
	}
	if known.DialedAt == nil {
		t.Error("DialedAt of the call = nil, want a time")
	}
	p.Refresh()
	testkit.NoError(t, func() error {
		var status string
		var legs int
		const read = "SELECT status, (SELECT count(*) FROM sip_legs WHERE ended_at IS NULL) FROM calls WHERE call_id = $1"
		if err := x.first.QueryRow(t.Context(), read, id).Scan(&status, &legs); err != nil {
			return err
		}
		if status != "in_progress" || legs != 1 {
			return fmt.Errorf("call status = %s, legs = %d", status, legs)
		}
		return nil
	})
	close(over)
	testkit.Until(t, "the call ends", func() bool { return p.Live() == 0 })
}

// After the failover, other calls use all channels of the trunk. The leg must be stored again
// anyway, because its call is live.
func TestRefresh_RestoresALegWhoseTrunkIsFull(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.channels = 1
	over := make(chan struct{})
	x.far.On("29", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Answer(audio)
		<-over
		c.Request(sipmsg.BYE, "")
	})
	p := x.begin(loopback)
	id, other := dial(t, p, "29", carrier.Answered), uuid.New()
	exec(t, x, "DELETE FROM sip_legs")
	exec(t, x, "INSERT INTO sip_leg_owners (owner, seen_at) VALUES ($1, now() + interval '1 hour')", other)
	exec(t, x, `INSERT INTO sip_legs (call_id, trunk_id, inbound, from_number, to_number, owner)
		VALUES (gen_random_uuid(), $1, false, '', '', $2)`, p.over.TrunkID, other)
	p.Refresh()
	testkit.Until(t, "the leg is stored again", func() bool { return x.legs(id) == 1 })
	close(over)
	testkit.Until(t, "the call ends", func() bool { return p.Live() == 0 })
}

// The new database server is a standby that lacks the newest rows. With the next event, the owner
// must store the leg and the earlier events again.
func TestRefresh_RestoresAnInboundCallAfterAFailover(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	p := x.begin(loopback)
	dialog, id := ring(t, p)

	exec(t, x, "DELETE FROM sip_legs")
	exec(t, x, "DELETE FROM calls")
	p.Refresh()
	x.awaitStatus(id, "ringing")
	if got := x.legs(id); got != 1 {
		t.Errorf("rows of the leg = %d, want 1", got)
	}
	if err := p.Answer(t.Context(), id); err != nil {
		t.Fatalf("Answer: %v", err)
	}
	x.awaitStatus(id, "in_progress")

	exec(t, x, "DELETE FROM sip_legs")
	exec(t, x, "DELETE FROM calls")
	if err := dialog.Hangup(t.Context(), callstate.NormalClearing); err != nil {
		t.Fatalf("Hangup: %v", err)
	}
	x.awaitStatus(id, "completed")
}

// The new database server is a standby that lacks the end of the call.
func TestRefresh_StoresTheEndOfACallAgain(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		lose []string
	}{
		{name: "the end is missing", lose: []string{
			"UPDATE sip_legs SET ended_at = NULL, cause = ''",
			`UPDATE calls SET status = 'in_progress', ended_at = NULL, hangup_cause = '', disposition = '', outcome = '',
				turns = '[]', analyse_at = NULL, version = 3`,
		}},
		{name: "the leg and all events are missing", lose: []string{
			"DELETE FROM sip_legs",
			`UPDATE calls SET status = 'fenced', dialed_at = NULL, ringing_at = NULL, answered_at = NULL, ended_at = NULL,
				hangup_cause = '', disposition = '', outcome = '', turns = '[]', analyse_at = NULL, version = 0`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			x.far.On("38", func(c *siptest.Call) {
				c.Respond(180, "")
				c.Answer(audio)
				c.Request(sipmsg.BYE, "")
			})
			p := x.begin(loopback)
			id := dial(t, p, "38", carrier.Ended)
			testkit.Until(t, "the end is stored", func() bool { return p.Live() == 0 })
			type row struct {
				Status, Cause, Outcome string
				Turns, LiveLegs        int
				EndedAt                time.Time
			}
			read := func() (r row) {
				const query = `SELECT status, hangup_cause, outcome, json_array_length(turns::json), ended_at,
					(SELECT count(*) FROM sip_legs WHERE ended_at IS NULL) FROM calls WHERE call_id = $1`
				err := x.first.QueryRow(t.Context(), query, id).Scan(
					&r.Status, &r.Cause, &r.Outcome, &r.Turns, &r.EndedAt, &r.LiveLegs)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			want := read()
			for _, sql := range tt.lose {
				exec(t, x, sql)
			}
			if _, err := p.Find(t.Context(), id); err != nil {
				t.Errorf("Find = %v, want nil", err)
			}
			p.Refresh()
			x.awaitStatus(id, "completed")
			if diff := cmp.Diff(want, read()); diff != "" {
				t.Errorf("call (-want +got):\n%s", diff)
			}
			p.Refresh()
			if diff := cmp.Diff(want, read()); diff != "" {
				t.Errorf("call after the second Refresh (-want +got):\n%s", diff)
			}
		})
	}
}

// The new database server is a standby that lacks the opt-out.
func TestRefresh_StoresOptOutsThatTheNewDatabaseServerLacks(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	answers := make(chan sipcarrier.ConversationCallbacks, 1)
	x.conversations = callbackConversations{answers}
	x.far.On("37", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Answer(audio)
	})
	p := x.begin(loopback)
	id := dial(t, p, "37", carrier.Answered)
	optOut(t, x, <-answers, id)
	exec(t, x, "DELETE FROM opt_outs")
	for range 2 { // a repeated opt-out must have no effect
		p.Refresh()
		testkit.NoError(t, func() error {
			var stored int
			err := x.first.QueryRow(t.Context(), "SELECT count(*) FROM opt_outs WHERE call_id = $1", id).Scan(&stored)
			if err == nil && stored != 1 {
				err = fmt.Errorf("stored opt-outs = %d, want 1", stored)
			}
			return err
		})
	}
}

func ring(t *testing.T, p *process) (*sip.Dialog, uuid.UUID) {
	t.Helper()
	caller, err := sip.New(sip.Config{UDP: loopback, Admit: func(netip.Addr) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(caller.Close)
	us := sip.Trunk{
		Name: "us", Host: "127.0.0.1", Port: p.agent.Port(transport.UDP), Transport: transport.UDP, CallerID: sip.InFrom,
	}
	invite := sip.Invite{CallID: uuid.NewString(), From: "+14155550100", To: "+14155559000", Body: []byte(audio)}
	dialog, err := caller.Invite(t.Context(), us, invite, sip.Observer{})
	if err != nil {
		t.Fatal(err)
	}
	var id uuid.UUID
	testkit.NoError(t, func() error {
		return p.x.first.QueryRow(t.Context(), "SELECT call_id FROM calls WHERE direction = 'inbound'").Scan(&id)
	})
	news(t, p, id, carrier.Ringing)
	return dialog, id
}

func (x *fixture) awaitStatus(id uuid.UUID, want string) {
	x.t.Helper()
	testkit.NoError(x.t, func() error {
		var got string
		const read = "SELECT status FROM calls WHERE call_id = $1"
		if err := x.first.QueryRow(x.t.Context(), read, id).Scan(&got); err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("status = %s, want %s", got, want)
		}
		return nil
	})
}

func exec(t *testing.T, x *fixture, sql string, args ...any) {
	t.Helper()
	if _, err := x.first.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (x *fixture) legs(id uuid.UUID) (n int) {
	x.t.Helper()
	const read = "SELECT count(*) FROM sip_legs WHERE call_id = $1"
	if err := x.first.QueryRow(x.t.Context(), read, id).Scan(&n); err != nil {
		x.t.Fatal(err)
	}
	return n
}

// The new database server is a standby that lacks the newest rows. With the next event, the owner
// must store the leg and the earlier events again.
func TestRun_RestoresACallAfterAFailover(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	lost := make(chan struct{})
	x.far.On("27", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Answer(audio)
		<-lost
		c.Request(sipmsg.BYE, "")
	})
	p := x.begin(loopback)
	id := dial(t, p, "27", carrier.Answered)
	for _, sql := range []string{
		"DELETE FROM sip_legs",
		"UPDATE calls SET status = 'fenced', dialed_at = NULL, ringing_at = NULL, answered_at = NULL, version = 0",
	} {
		if _, err := x.first.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	close(lost)
	var status string
	var answered bool
	testkit.NoError(t, func() error {
		const read = "SELECT status, answered_at IS NOT NULL FROM calls WHERE call_id = $1 AND ended_at IS NOT NULL"
		return x.first.QueryRow(t.Context(), read, id).Scan(&status, &answered)
	})
	if status != "completed" {
		t.Errorf("status = %s, want completed", status)
	}
	if !answered {
		t.Error("answered = false, want true")
	}
	if _, err := p.Find(t.Context(), id); err != nil {
		t.Errorf("Find = %v, want nil", err)
	}
}

// The trunk challenges the request that ends the call. So the dialer needs the credentials of a
// trunk that is disabled.
func TestRun_CallsOfADeadProcessEndEvenIfTheirTrunkIsDisabled(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	ended := make(chan string, 1)
	x.far.On("22", func(c *siptest.Call) {
		c.Respond(180, "")
		c.Answer(audio)
		c.Next(sipmsg.BYE).Reply(407, `Proxy-Authenticate: Digest realm="far", nonce="n", algorithm=MD5, qop="auth"`)
		bye := c.Next(sipmsg.BYE)
		bye.Reply(200)
		ended <- bye.Header("Proxy-Authorization")
	})
	var over trunks.Trunk
	first := x.startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
		over = good
		over.TrunkID, over.Username, over.Password = uuid.New(), "ringfence", "secret"
		return trunkList{over}
	})
	first.awaitAnswers(t, over)
	udp := "127.0.0.1:" + strconv.Itoa(first.agent.Port(transport.UDP))
	dial(t, first, "22", carrier.Answered)
	first.stop()
	x.startWithTrunks(udp, func(trunks.Trunk) activeTrunks {
		return trunkStore{activeTrunks: trunkList{}, disabled: over}
	})
	select {
	case credentials := <-ended:
		if credentials == "" {
			t.Error("the second BYE has no credentials")
		}
	case <-time.After(testkit.Timeout):
		t.Fatal("the trunk received no second BYE")
	}
}

// unreadyConversations creates conversations whose agent's session cannot be opened.
type unreadyConversations struct{}

func (unreadyConversations) Begin(context.Context, uuid.UUID, trunks.Trunk) (sipcarrier.Conversation, error) {
	return unreadyConversation{}, nil
}

type unreadyConversation struct{ fakeConversation }

func (unreadyConversation) Ready(context.Context) error { return errors.New("the agent is not there") }

func TestOriginate_SendsNoINVITEWithoutAnAgent(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.conversations = unreadyConversations{}
	x.far.On("23", func(c *siptest.Call) {
		t.Error("the trunk received an INVITE")
		c.Respond(486, "")
	})
	p := x.begin(loopback)
	o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550223"}
	var refused *carrier.Refused
	if _, err := p.Originate(t.Context(), o); !errors.As(err, &refused) {
		t.Fatalf("Originate = %v, want a refusal", err)
	}
	if got, want := refused.Cause, callstate.AgentError; got != want {
		t.Errorf("cause = %q, want %q", got, want)
	}
	if !refused.NotSent {
		t.Error("Unsent = false, want true")
	}
	if !refused.OperatorFault {
		t.Error("OperatorFault = false, want true")
	}
	if got := p.Live(); got != 0 {
		t.Errorf("live legs = %d, want 0", got)
	}
}

// Opening the agent's session can take seconds. So the permit must be requested after the session
// is open.
func TestOriginate_SendsNoINVITEWithoutAPermit(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.far.On("24", func(c *siptest.Call) {
		t.Error("the trunk received an INVITE")
		c.Respond(486, "")
	})
	p := x.begin(loopback)
	asked := 0
	o := carrier.Originate{
		CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550224",
		Permit: func(context.Context) bool { asked++; return false },
	}
	if _, err := p.Originate(t.Context(), o); !errors.Is(err, carrier.ErrNotPermitted) {
		t.Errorf("Originate = %v, want ErrNotPermitted", err)
	}
	if asked != 1 {
		t.Errorf("permits asked = %d, want 1", asked)
	}
	if got := p.Live(); got != 0 {
		t.Errorf("live legs = %d, want 0", got)
	}
}

// The trunk requests credentials, and the second INVITE is not permitted. This must not count as a
// rejection of the operator's account.
func TestOriginate_MissingPermitAfterAChallengeKeepsTheCircuitClosed(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.far.On("25", func(c *siptest.Call) { c.Respond(401, "", `WWW-Authenticate: Digest realm="test", nonce="1"`) })
	p := x.startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
		good.Username, good.Password = "account", "secret"
		return trunkList{good}
	})
	p.awaitAnswers(t, p.over)
	asked := 0
	o := carrier.Originate{
		CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550225",
		Permit: func(context.Context) bool { asked++; return asked == 1 },
	}
	at, err := p.Originate(t.Context(), o)
	var refused *carrier.Refused
	if !errors.As(err, &refused) {
		t.Fatalf("Originate = %v, want a refusal", err)
	}
	if !errors.Is(err, carrier.ErrNotPermitted) {
		t.Errorf("Originate = %v, want ErrNotPermitted", err)
	}
	if refused.Cause != callstate.NormalTemporaryFailure {
		t.Errorf("cause = %s, want %s", refused.Cause, callstate.NormalTemporaryFailure)
	}
	if refused.OperatorFault {
		t.Error("OperatorFault = true, want false")
	}
	if at.IsZero() {
		t.Error("time of the dial = 0, want that of the first INVITE")
	}
	for _, one := range p.Trunks() {
		if one.State != replicas.Up {
			t.Errorf("state of the trunk = %s, want %s", one.State, replicas.Up)
		}
	}
}

// The trunk requests credentials. It is paused before the second INVITE.
func TestOriginate_PauseAfterAChallengeReturnsErrTrunkPaused(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	trunkID := make(chan uuid.UUID, 1)
	var paused atomic.Pointer[dialqueue.LatestPause]
	x.pauses = dialqueue.NewPauseMonitor(func(context.Context) (all []dialqueue.LatestPause, err error) {
		if one := paused.Load(); one != nil {
			all = append(all, *one)
		}
		return all, nil
	}, prometheus.NewRegistry())
	go func() { _ = x.pauses.Run(t.Context()) }()
	x.far.On("25", func(c *siptest.Call) {
		id := <-trunkID
		paused.Store(&dialqueue.LatestPause{
			PauseScope: dialqueue.PauseScope{Level: dialqueue.PauseTrunk, ID: id}, Open: true,
		})
		testkit.Until(t, "the pause is read", func() bool { return !x.pauses.MayUse(t.Context(), id) })
		c.Respond(401, "", `WWW-Authenticate: Digest realm="test", nonce="1"`)
	})
	p := x.startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
		good.Username, good.Password = "account", "secret"
		trunkID <- good.TrunkID
		return trunkList{good}
	})
	p.awaitAnswers(t, p.over)
	o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550225"}
	_, err := p.Originate(t.Context(), o)
	var refused *carrier.Refused
	if !errors.As(err, &refused) {
		t.Errorf("Originate = %v, want a refusal", err)
	}
	if !errors.Is(err, carrier.ErrTrunkPaused) {
		t.Errorf("Originate = %v, want ErrTrunkPaused", err)
	}
}

func TestOriginate_DatabaseFaultDoesNotCountAgainstTheTrunk(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	known := &databaseOutage{x: x}
	x.conversations = known
	p := x.begin(loopback)
	order := func() carrier.Originate {
		return carrier.Originate{
			CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550111",
		}
	}
	lost := order()
	known.ready.Store(true)
	var refused *carrier.Refused
	if _, err := p.Originate(t.Context(), lost); !errors.As(err, &refused) {
		t.Fatalf("Originate without a database = %v, want a refusal", err)
	}
	if !refused.NotSent {
		t.Error("Unsent = false, want true")
	}
	known.ready.Store(false)
	x.away.Store(false)
	if _, err := p.Originate(t.Context(), order()); err != nil {
		t.Errorf("Originate with the database = %v, want nil", err)
	}
}

// databaseOutage creates conversations. While ready is true, opening an agent's session makes the
// database unavailable.
type databaseOutage struct {
	x     *fixture
	ready atomic.Bool
}

func (o *databaseOutage) Begin(context.Context, uuid.UUID, trunks.Trunk) (sipcarrier.Conversation, error) {
	return outageConversation{o: o}, nil
}

type outageConversation struct {
	fakeConversation
	o *databaseOutage
}

func (t outageConversation) Ready(context.Context) error {
	if t.o.ready.Load() {
		t.o.x.away.Store(true)
	}
	return nil
}

// hangingTrunks is a Trunks whose method Active returns only when ctx ends.
type hangingTrunks struct{}

func (hangingTrunks) Active(ctx context.Context) ([]trunks.Trunk, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Heartbeats must not wait for other work, because other processes end the calls of a process
// without heartbeats.
func TestRun_SendsHeartbeatsWhileAQueryHangs(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.startWithTrunks(loopback, func(trunks.Trunk) activeTrunks { return hangingTrunks{} })
	var seen time.Time
	changes := 0
	testkit.NoError(t, func() error {
		var last time.Time
		if x.first.QueryRow(t.Context(), "SELECT seen_at FROM sip_leg_owners").Scan(&last) == nil && last.After(seen) {
			seen, changes = last, changes+1
		}
		if changes < 20 {
			return fmt.Errorf("heartbeats = %d, want 20; the last was at %v", changes, seen)
		}
		return nil
	})
}

// The teardown state of a ringing call leads to a CANCEL, but an answered call needs a BYE. So if
// the state cannot be stored at the answer, it must be stored later.
func TestStoreState_FailedWriteIsRepeatedLater(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	answer, answered := make(chan struct{}), make(chan struct{})
	pickUp := sync.OnceFunc(func() { close(answer) })
	defer pickUp()
	x.far.On("24", func(c *siptest.Call) {
		c.Respond(180, "")
		<-answer
		c.Answer(audio)
		close(answered)
		c.Hangup()
	})
	p := x.begin(loopback)
	id := dial(t, p, "24", carrier.Ringing)
	state := func() (state string) {
		t.Helper()
		if err := x.first.QueryRow(t.Context(), "SELECT encode(teardown, 'hex') FROM sip_legs WHERE call_id = $1",
			id).Scan(&state); err != nil {
			t.Fatal(err)
		}
		return state
	}
	ringing := state()
	x.away.Store(true)
	pickUp()
	<-answered
	x.away.Store(false)
	testkit.Until(t, "the teardown of the answered call is stored", func() bool { return state() != ringing })
	if _, err := p.Hangup(t.Context(), id); err != nil {
		t.Error(err)
	}
}
