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
	// agentTimeout limits the wait for the agent's session after the answer.
	agentTimeout = 3 * time.Second
	// openTimeout is the time limit for opening the agent's session. The opening starts when the
	// phone rings.
	openTimeout = 30 * time.Second
	// endTimeout limits how long End waits for the end of the conversation.
	endTimeout = 5 * time.Second
)

// sipCall contains the media and the conversation of one call. It implements
// sipcarrier.Conversation.
type sipCall struct {
	calls   *SIPCalls
	callID  uuid.UUID
	stream  *media.Stream
	session *sdp.Session
	offer   []byte
	callCtx context.Context // canceled when the call ends
	stop    context.CancelFunc

	open   sync.Once
	opened chan struct{} // closed after the session was opened or could not be opened
	agent  openedAgent
	fault  error

	conversation     atomic.Pointer[Conversation]
	callbacks        atomic.Pointer[sipcarrier.ConversationCallbacks]
	begun            atomic.Bool
	conversationDone chan struct{} // closed when the conversation has ended
	result           sipcarrier.Result
}

func (t *sipCall) Offer() []byte { return t.offer }

func (t *sipCall) FrameUnsent() {
	if c := t.conversation.Load(); c != nil {
		c.FrameUnsent()
	}
}

func (t *sipCall) NextFrame(dst []byte) bool {
	c := t.conversation.Load()
	return c != nil && c.NextFrame(dst)
}

// HearFrame passes a frame to the conversation. Before the answer it has no effect.
func (t *sipCall) HearFrame(frame []byte) {
	if c := t.conversation.Load(); c != nil {
		c.HearFrame(frame)
	}
}

func (t *sipCall) HearDigit(digit byte) {
	if c := t.conversation.Load(); c != nil {
		c.HearDigit(digit)
	}
}

func (t *sipCall) timedOut() {
	if callbacks := t.callbacks.Load(); callbacks != nil {
		callbacks.HangUp(callstate.MediaTimeout)
	}
}

// openSession opens the agent's session in the background. Later calls have no effect.
func (t *sipCall) openSession() {
	t.open.Do(func() {
		go func() {
			defer close(t.opened)
			ctx, cancel := context.WithTimeout(t.callCtx, openTimeout)
			defer cancel()
			t.agent, t.fault = t.calls.open(ctx, t.callID)
		}()
	})
}

func (t *sipCall) Answer(answer []byte, callbacks sipcarrier.ConversationCallbacks) error {
	agreed, err := t.session.ReadAnswer(answer, sdp.Both)
	if err != nil {
		return fmt.Errorf("read the SDP answer: %w", err)
	}
	if err := t.stream.Connect(agreed); err != nil {
		return fmt.Errorf("connect the stream: %w", err)
	}
	t.Begin(callbacks)
	return nil
}

func (t *sipCall) Begin(callbacks sipcarrier.ConversationCallbacks) {
	t.callbacks.Store(&callbacks)
	t.openSession() // has an effect only if the phone did not ring before the answer
	if t.begun.CompareAndSwap(false, true) {
		go t.runConversation(callbacks)
	}
}

func (t *sipCall) Ready(ctx context.Context) error {
	t.openSession()
	select {
	case <-t.opened:
		return t.fault
	case <-ctx.Done():
		return fmt.Errorf("open agent session: %w", ctx.Err())
	case <-t.callCtx.Done():
		return fmt.Errorf("open agent session: %w", t.callCtx.Err())
	}
}

// Accept returns the SDP answer to the SDP offer of an inbound call. If the offer is empty, Accept
// returns an SDP offer of the dialer.
func (t *sipCall) Accept(offer []byte) ([]byte, error) {
	if len(offer) == 0 {
		return t.offer, nil
	}
	return t.Offered(offer)
}

// runConversation runs the conversation. It hangs up if the agent's session is not open within
// agentTimeout.
func (t *sipCall) runConversation(callbacks sipcarrier.ConversationCallbacks) {
	defer close(t.conversationDone)
	limit := time.NewTimer(agentTimeout)
	defer limit.Stop()
	fault := errLate
	select {
	case <-t.opened:
		fault = t.fault
	case <-limit.C:
	case <-t.callCtx.Done():
		fault = t.callCtx.Err()
	}
	if fault != nil {
		go t.closeSession()
	}
	if t.callCtx.Err() != nil {
		return
	}
	if fault != nil {
		slog.Warn("agent session not opened, call hung up", "call_id", t.callID, "error", fault)
		t.result = sipcarrier.Result{Reached: agent.ReachedError}
		callbacks.HangUp(callstate.AgentError)
		return
	}
	conversation := New(
		t.agent.session,
		t.agent.settings,
		phoneLeg{t.stream, callbacks.Transfer},
		&amdDetector{},
		callbacks.OptedOut,
	)
	if t.agent.recording != nil {
		t.agent.recording.join(conversation)
		defer t.agent.recording.close()
	}
	t.conversation.Store(conversation)
	r := conversation.Run(t.callCtx)
	if r.Reworded != "" {
		slog.Warn("agent spoke other words than the disclosure text", "call_id", t.callID, "spoken", r.Reworded)
	}
	if r.UnlistedOutcome != "" {
		slog.Warn("agent returned an outcome that is not in its list", "call_id", t.callID, "returned_outcome",
			r.UnlistedOutcome, "stored_outcome", r.Outcome)
	}
	t.conversation.Store(nil)
	t.result = sipcarrier.Result{
		Turns: r.Turns, Outcome: r.Outcome, Reached: r.Reached, CallbackAt: r.CallbackAt, Disclosure: r.Disclosure,
	}
	if r.Cause != "" {
		callbacks.HangUp(r.Cause)
	}
}

var errLate = errors.New("the agent was not ready in time")

// Offered returns the SDP answer to the far end's offer within the call, for example for a hold or
// a session refresh. If offer is nil, Offered returns an SDP offer of the dialer.
func (t *sipCall) Offered(offer []byte) ([]byte, error) {
	if offer == nil {
		return t.session.Offer(sdp.Both)
	}
	answer, agreed, err := t.session.Answer(offer, sdp.Both)
	if err != nil {
		return nil, fmt.Errorf("answer an SDP offer: %w", err)
	}
	if err := t.stream.Connect(agreed); err != nil {
		return nil, fmt.Errorf("connect the stream: %w", err)
	}
	return answer, nil
}

// Agreed applies the far end's SDP answer to an offer that Offered returned.
func (t *sipCall) Agreed(answer []byte) {
	agreed, err := t.session.ReadAnswer(answer, sdp.Both)
	if err == nil {
		err = t.stream.Connect(agreed)
	}
	if err != nil {
		slog.Warn("SDP answer to an offer within the call not usable", "call_id", t.callID, "error", err)
	}
}

func (t *sipCall) End() sipcarrier.Result {
	t.stop()
	if t.begun.Load() {
		select {
		case <-t.conversationDone:
		case <-time.After(endTimeout):
			slog.Warn("conversation did not end in time", "call_id", t.callID)
			t.stream.Close()
			return sipcarrier.Result{Reached: agent.ReachedError}
		}
	} else {
		t.open.Do(func() { close(t.opened) })
		go t.closeSession()
	}
	t.stream.Close()
	return t.result
}

func (t *sipCall) closeSession() {
	<-t.opened
	if t.agent.session != nil {
		t.agent.session.Close()
	}
}

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
		return errors.New("this call cannot be transferred")
	}
	return l.transfer(ctx, to)
}

// amdDetector adapts amd.Detector to the interface Detector.
type amdDetector struct{ amd.Detector }

func (e *amdDetector) Hear(frame []byte) (heard Signal) {
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
