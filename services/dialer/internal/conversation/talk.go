package conversation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/amd"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/media"
	"ringfence.dev/services/dialer/internal/sdp"
	"ringfence.dev/services/dialer/internal/sipcarrier"
)

const (
	// ready is how long a person who picked up may hear nothing while the agent is still being reached.
	ready = 3 * time.Second
	// reaching bounds the reaching itself: it begins with the ringing.
	reaching = 30 * time.Second
	// parting is how long a conversation whose call is over may take to end.
	parting = 5 * time.Second
)

// talk is one call's.
type talk struct {
	talking *SIPCalls
	callID  uuid.UUID
	stream  *media.Stream
	session *sdp.Session
	offer   []byte
	life    context.Context // ends with the call
	stop    context.CancelFunc

	open   sync.Once
	opened chan struct{} // closed when the agent was reached, or could not be
	agent  reached
	fault  error

	conversation atomic.Pointer[Conversation]
	told         atomic.Pointer[sipcarrier.Told]
	begun        atomic.Bool
	talked       chan struct{} // closed when the conversation is over
	result       sipcarrier.Result
}

// Offer describes our audio.
func (t *talk) Offer() []byte { return t.offer }

// FrameUnsent is media.Source's.
func (t *talk) FrameUnsent() {
	if c := t.conversation.Load(); c != nil {
		c.FrameUnsent()
	}
}

// NextFrame is what the agent says.
func (t *talk) NextFrame(dst []byte) bool {
	c := t.conversation.Load()
	return c != nil && c.NextFrame(dst)
}

// HearFrame is what the person says. Before the answer nobody listens.
func (t *talk) HearFrame(frame []byte) {
	if c := t.conversation.Load(); c != nil {
		c.HearFrame(frame)
	}
}

// HearDigit is a key that the person pressed.
func (t *talk) HearDigit(digit byte) {
	if c := t.conversation.Load(); c != nil {
		c.HearDigit(digit)
	}
}

func (t *talk) timedOut() {
	if told := t.told.Load(); told != nil {
		told.Over(callstate.MediaTimeout)
	}
}

// reach begins to reach the agent, once.
func (t *talk) reach() {
	t.open.Do(func() {
		go func() {
			defer close(t.opened)
			ctx, cancel := context.WithTimeout(t.life, reaching)
			defer cancel()
			t.agent, t.fault = t.talking.open(ctx, t.callID)
		}()
	})
}

// Answer connects the stream and begins the conversation.
func (t *talk) Answer(answer []byte, told sipcarrier.Told) error {
	agreed, err := t.session.ReadAnswer(answer, sdp.Both)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if err := t.stream.Connect(agreed); err != nil {
		return fmt.Errorf("connect the stream: %w", err)
	}
	t.Begin(told)
	return nil
}

// Begin begins the conversation.
func (t *talk) Begin(told sipcarrier.Told) {
	t.told.Store(&told)
	t.reach() // whoever answers without ringing
	if t.begun.CompareAndSwap(false, true) {
		go t.converse(told)
	}
}

// Ready reaches the agent.
func (t *talk) Ready(ctx context.Context) error {
	t.reach()
	select {
	case <-t.opened:
		return t.fault
	case <-ctx.Done():
		return fmt.Errorf("reach the agent: %w", ctx.Err())
	case <-t.life.Done():
		return fmt.Errorf("reach the agent: %w", t.life.Err())
	}
}

// Accept answers a caller's offer; an empty one wants ours.
func (t *talk) Accept(offer []byte) ([]byte, error) {
	if len(offer) == 0 {
		return t.offer, nil
	}
	return t.Offered(offer)
}

// converse holds the conversation. An agent that is not there in time ends the call, rather than let a person listen to nothing.
func (t *talk) converse(told sipcarrier.Told) {
	defer close(t.talked)
	limit := time.NewTimer(ready)
	defer limit.Stop()
	fault := errLate
	select {
	case <-t.opened:
		fault = t.fault
	case <-limit.C:
	case <-t.life.Done():
		fault = t.life.Err()
	}
	if fault != nil {
		go t.dismiss()
	}
	if t.life.Err() != nil {
		return
	}
	if fault != nil {
		slog.Warn("a call was answered and its agent is not there", "call_id", t.callID, "error", fault)
		t.result = sipcarrier.Result{Reached: agent.ReachedError}
		told.Over(callstate.AgentError)
		return
	}
	conversation := New(t.agent.session, t.agent.how, phoneLeg{t.stream, told.Transfer}, &ears{}, told.OptedOut)
	if t.agent.tape != nil {
		t.agent.tape.join(conversation)
		defer t.agent.tape.close()
	}
	t.conversation.Store(conversation)
	r := conversation.Run(t.life)
	if r.Reworded != "" {
		slog.Warn("agent spoke other words than the disclosure", "call_id", t.callID, "spoken", r.Reworded)
	}
	if r.UnlistedOutcome != "" {
		slog.Warn("agent gave an outcome that is not in its list", "call_id", t.callID, "given", r.UnlistedOutcome,
			"outcome", r.Outcome)
	}
	t.conversation.Store(nil)
	t.result = sipcarrier.Result{
		Turns: r.Turns, Outcome: r.Outcome, Reached: r.Reached, CallbackAt: r.CallbackAt, Disclosure: r.Disclosure,
	}
	if r.Cause != "" {
		told.Over(r.Cause)
	}
}

var errLate = errors.New("the agent was not ready when the person was")

// Offered answers a hold, a resume, a refresh or a change of address.
func (t *talk) Offered(offer []byte) ([]byte, error) {
	if offer == nil {
		return t.session.Offer(sdp.Both)
	}
	answer, agreed, err := t.session.Answer(offer, sdp.Both)
	if err != nil {
		return nil, fmt.Errorf("answer an offer: %w", err)
	}
	if err := t.stream.Connect(agreed); err != nil {
		return nil, fmt.Errorf("connect the stream: %w", err)
	}
	return answer, nil
}

// Agreed takes the answer to an offer that was asked of us.
func (t *talk) Agreed(answer []byte) {
	agreed, err := t.session.ReadAnswer(answer, sdp.Both)
	if err == nil {
		err = t.stream.Connect(agreed)
	}
	if err != nil {
		slog.Warn("an answer within a call says nothing that could be used", "call_id", t.callID, "error", err)
	}
}

// End ends the conversation and the stream.
func (t *talk) End() sipcarrier.Result {
	t.stop()
	if t.begun.Load() {
		select {
		case <-t.talked:
		case <-time.After(parting):
			slog.Warn("a conversation does not end", "call_id", t.callID)
			t.stream.Close()
			return sipcarrier.Result{Reached: agent.ReachedError}
		}
	} else {
		t.open.Do(func() { close(t.opened) })
		go t.dismiss()
	}
	t.stream.Close()
	return t.result
}

// dismiss sends an agent away that nobody talked to.
func (t *talk) dismiss() {
	<-t.opened
	if t.agent.session != nil {
		t.agent.session.Close()
	}
}

// phoneLeg is what a conversation can ask of the telephone.
type phoneLeg struct {
	stream   *media.Stream
	transfer func(ctx context.Context, to string) error
}

func (l phoneLeg) SpeakSoon() { l.stream.SpeakSoon() }

func (l phoneLeg) SendDigits(_ context.Context, digits string) error {
	return l.stream.SendDigits(digits)
}

func (l phoneLeg) Transfer(ctx context.Context, to string) error {
	if l.transfer == nil {
		return errors.New("this line cannot hand calls on")
	}
	return l.transfer(ctx, to)
}

// ears hear who answered.
type ears struct{ amd.Detector }

// Hear takes the person's next frame.
func (e *ears) Hear(frame []byte) (heard Signal) {
	signal := e.Detector.Hear(frame)
	if signal&amd.Machine != 0 {
		heard |= Machine
	}
	if signal&amd.Beep != 0 {
		heard |= Beep
	}
	if signal&amd.Fax != 0 {
		heard |= Fax
	}
	return heard
}
