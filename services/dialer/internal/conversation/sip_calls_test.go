package conversation_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/conversation"
	"ringfence.dev/services/dialer/internal/media"
	"ringfence.dev/services/dialer/internal/sdp"
	"ringfence.dev/services/dialer/internal/sipcarrier"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

const endTimeout = testkit.Timeout

var loopback = netip.MustParseAddr("127.0.0.1")

type orders string

func (o orders) ConversationInputs(context.Context, uuid.UUID) (store.ConversationInputs, error) {
	return store.ConversationInputs{
		Settings:       []byte(o),
		Person:         "+14155550101",
		TimeZone:       "Asia/Tokyo",
		MaxCallSeconds: 60,
		Recorded:       true,
	}, nil
}

type noKeys struct{}

func (noKeys) Key(context.Context, uuid.UUID, uuid.UUID) (string, error) {
	return "", pg.ErrNotFound
}

type person struct {
	mu     sync.Mutex
	loud   int
	frames int
}

func (p *person) HearFrame(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames++
	for _, sample := range frame {
		if sample&0x7f < 0x50 { // ignore quiet samples
			p.loud++
			return
		}
	}
}

func (p *person) HearDigit(byte) {}

func (p *person) time() time.Duration {
	_, frames := p.heard()
	return time.Duration(frames) * 20 * time.Millisecond
}

func (p *person) heard() (loud, frames int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loud, p.frames
}

type callTest struct {
	t       *testing.T
	streams *media.Streams
	call    sipcarrier.Conversation
	over    chan callstate.Cause
	person  *person
	far     *media.Stream
	session *sdp.Session
	answer  []byte
}

func newCallTest(
	t *testing.T,
	settings string,
	agents map[string]agent.Opener,
	change ...func(*trunks.Trunk),
) *callTest {
	t.Helper()
	t.Parallel()
	return newRecordedCallTest(t, settings, nil, agents, change...)
}

func newRecordedCallTest(
	t *testing.T,
	settings string,
	recorder conversation.CallRecorder,
	agents map[string]agent.Opener,
	change ...func(*trunks.Trunk),
) *callTest {
	t.Helper()
	streams, err := media.New(media.Settings{Bind: loopback}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = streams.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	r := &callTest{t: t, streams: streams, over: make(chan callstate.Cause, 8), person: &person{}}
	if agents == nil {
		agents = map[string]agent.Opener{
			agent.Scripted: agent.New(
				func(wait time.Duration, do func()) func() bool { return time.AfterFunc(wait, do).Stop },
			),
		}
	}
	over := trunks.New(uuid.Nil)
	for _, one := range change {
		one(&over)
	}
	r.call, err = conversation.NewSIPCalls(
		orders(settings),
		noKeys{},
		streams,
		loopback,
		agents,
		recorder,
	).Begin(
		t.Context(),
		uuid.New(),
		over,
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.call.End() })
	if r.far, err = streams.Open(media.Leg{Sink: r.person}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.far.Close() })
	r.session = sdp.NewSession(7, sdp.Local{Address: loopback, Port: r.far.Port(), Secrecy: sdp.Secrecy(over.SRTP)})
	var agreed sdp.Agreed
	if r.answer, agreed, err = r.session.Answer(r.call.Offer(), sdp.Both); err != nil {
		t.Fatalf("the far end cannot answer %s: %v", r.call.Offer(), err)
	}
	if err := r.far.Connect(agreed); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *callTest) pickUp() {
	r.t.Helper()
	if err := r.call.Answer(r.answer,
		sipcarrier.ConversationCallbacks{HangUp: func(cause callstate.Cause) { r.over <- cause }}); err != nil {
		r.t.Fatalf("answer: %v", err)
	}
}

func (r *callTest) waitOver() callstate.Cause {
	r.t.Helper()
	select {
	case cause := <-r.over:
		return cause
	case <-time.After(endTimeout):
		r.t.Fatal("the conversation did not end")
		return ""
	}
}

const aTone = `{"script":{"tone_hz":440,"tone_millis":300,"end_after_millis":600}}`

func TestSIPCall_AgentSpeaksAndEndsTheCall(t *testing.T) {
	for name, change := range map[string]func(*trunks.Trunk){
		"plain":  func(*trunks.Trunk) {},
		"a-law":  func(over *trunks.Trunk) { over.Codecs = []string{trunks.PCMA} },
		"secret": func(over *trunks.Trunk) { over.SRTP = trunks.SRTPRequired },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecordedCallTest(t, aTone, nil, nil, change)
			if secret := strings.Contains(string(r.call.Offer()), "RTP/SAVP"); secret != (name == "secret") {
				t.Errorf("offer = %s", r.call.Offer())
			}
			if err := r.call.Ready(t.Context()); err != nil {
				t.Error(err)
			}
			r.pickUp()
			if cause := r.waitOver(); cause != callstate.NormalClearing {
				t.Errorf("hangup cause = %q", cause)
			}
			testkit.Until(
				t,
				"the person receives the tone",
				func() bool { loud, _ := r.person.heard(); return loud > 0 },
			)
			if got := r.call.End(); got.Reached == "" {
				t.Error("result: got.Reached is empty, want a value")
			} else if got.Reached == agent.ReachedError {
				t.Errorf("result: got.Reached = %v, want another value", got.Reached)
			}
		})
	}
}

func TestSIPCall_EndsWhenThePersonHangsUp(t *testing.T) {
	r := newCallTest(t, `{"script":{"tone_hz":440,"tone_millis":60000}}`, nil)
	r.pickUp()
	testkit.Until(t, "the person hears the agent", func() bool { loud, _ := r.person.heard(); return loud > 0 })
	if got := r.call.End(); got.Reached == "" {
		t.Errorf("result = %+v", got)
	}
	select {
	case cause := <-r.over:
		t.Errorf("hangup by the agent with %q after the person hung up", cause)
	default:
	}
	if again := r.call.End(); again.Reached == "" {
		t.Errorf("result of the second End = %+v", again)
	}
}

func TestSIPCall_ContinuesAfterThePersonPutItOnHold(t *testing.T) {
	r := newCallTest(t, `{"script":{"tone_hz":440,"tone_millis":60000}}`, nil)
	r.pickUp()
	offer := func(d sdp.Direction) {
		t.Helper()
		body, err := r.session.Offer(d)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := r.call.Offered(body)
		if err != nil {
			t.Fatalf("offered: %v", err)
		}
		agreed, err := r.session.ReadAnswer(answer, d)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.far.Connect(agreed); err != nil {
			t.Fatal(err)
		}
	}
	heardBefore, _ := r.person.heard()
	hears := func() bool { loud, _ := r.person.heard(); return loud > heardBefore+3 }
	silent := func() bool {
		before, _ := r.person.heard()
		<-time.After(300 * time.Millisecond)
		after, _ := r.person.heard()
		return after == before
	}
	testkit.Until(t, "the person hears the agent", hears)
	offer(sdp.SendOnly)
	testkit.Until(t, "the agent is silent while it is on hold", silent)
	heardBefore, _ = r.person.heard()
	offer(sdp.Both)
	testkit.Until(t, "the person hears the agent again", hears)
	if body, err := r.call.Offered(nil); err != nil {
		t.Errorf("an offer of ours: Offered: %v", err)
	} else if len(body) == 0 {
		t.Error("an offer of ours: length of body = 0, want more")
	}
	if _, err := r.call.Offered([]byte("v=0")); err == nil {
		t.Error("Offered accepted an invalid offer")
	}
}

type opener func(ctx context.Context) (agent.Session, error)

func (o opener) Open(ctx context.Context, _ agent.Spec) (agent.Session, error) { return o(ctx) }

func TestSIPCall_HangsUpIfTheAgentIsNotReadyInTime(t *testing.T) {
	for name, open := range map[string]opener{
		"cannot be reached": func(context.Context) (agent.Session, error) { return nil, errors.New("no model") },
		"comes too late":    func(ctx context.Context) (agent.Session, error) { <-ctx.Done(); return nil, ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newCallTest(t, `{}`, map[string]agent.Opener{agent.Scripted: open})
			r.pickUp()
			if cause := r.waitOver(); cause != callstate.AgentError {
				t.Errorf("hangup cause = %q", cause)
			}
			if got := r.call.End(); got.Reached != agent.ReachedError {
				t.Errorf("result = %+v", got)
			}
		})
	}
	t.Run("unknown kind", func(t *testing.T) {
		r := newCallTest(t, `{"kind":"openai_realtime"}`, nil)
		r.pickUp()
		if cause := r.waitOver(); cause != callstate.AgentError {
			t.Errorf("hangup cause = %q", cause)
		}
	})
}

func TestSIPCall_ClosesTheSessionOfAnUnansweredCall(t *testing.T) {
	begun, canceled := make(chan struct{}), make(chan struct{})
	r := newCallTest(
		t,
		`{}`,
		map[string]agent.Opener{agent.Scripted: opener(func(ctx context.Context) (agent.Session, error) {
			close(begun)
			<-ctx.Done()
			close(canceled)
			return nil, ctx.Err()
		})},
	)
	ready := make(chan error, 1)
	go func() { ready <- r.call.Ready(t.Context()) }()
	<-begun
	if got := r.call.End(); got.Reached != "" {
		t.Errorf("result: got.Reached = %q, want it empty", got.Reached)
	} else if len(got.Turns) != 0 {
		t.Errorf("result: got.Turns = %v, want none", got.Turns)
	}
	select {
	case <-canceled:
	case <-time.After(endTimeout):
		t.Error("the session is still being opened")
	}
	if err := <-ready; !errors.Is(err, context.Canceled) {
		t.Errorf("Ready = %v", err)
	}
}

type specOpener chan agent.Spec

func (a specOpener) Open(_ context.Context, spec agent.Spec) (agent.Session, error) {
	a <- spec
	return nil, errors.New("no model")
}

func TestSIPCall_UsesThePersonsTimeZone(t *testing.T) {
	opened := make(specOpener, 1)
	r := newCallTest(t, `{}`, map[string]agent.Opener{agent.Scripted: opened})
	r.pickUp()
	if spec := <-opened; spec.Zone.String() != "Asia/Tokyo" {
		t.Errorf("zone of the spec = %s", spec.Zone)
	}
	r.waitOver()
}

func TestSIPCall_RefusesAnAnswerWithoutMedia(t *testing.T) {
	r := newCallTest(t, `{}`, nil)
	for _, answer := range []string{"", "v=0\r\n", strings.Replace(string(r.answer), "RTP/AVP", "RTP/SAVP", 1), strings.Replace(string(r.answer), "m=audio "+port(r.answer), "m=audio 0", 1)} {
		if err := r.call.Answer([]byte(answer), sipcarrier.ConversationCallbacks{}); err == nil {
			t.Errorf("Answer accepted %q", answer)
		}
	}
}

func port(description []byte) string {
	_, rest, _ := strings.Cut(string(description), "m=audio ")
	number, _, _ := strings.Cut(rest, " ")
	return number
}
