// Package bridge owns one conversation: it joins the audio of a call's leg with an agent's session. What is queued for the person and what of it was really heard, who
// said what and when, how long it may take, what a machine's answer means and what the agent's tools lead to are decided here. It knows no carrier and no agent's
// protocol, keeps nothing, and tells what became of the call when it is over.
package bridge

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/call"
)

// Settings of a conversation.
type Settings struct {
	Agent agent.Settings
	// Longest bounds the conversation. It is at most the longest session of the agent's kind, which
	// is also the bound if it is zero.
	Longest time.Duration
	// Zone is the person's; nil: UTC.
	Zone *time.Location
	// Disclosure is the text that the agent was asked to say first: the disclosure and the notice of a
	// recording. It is empty if there is none.
	Disclosure string
	// Noticed is told once, when the person has heard to its end that the call is recorded, and Objected, once, when they do not want that: before the agent says another word. Both
	// return soon; nil: nobody records.
	Noticed, Objected func()
}

// Leg is what a conversation can ask of the telephone. SendDigits and Transfer may take as long as they need.
type Leg interface {
	// SpeakSoon says that there is something to say, and that nothing was waiting to be said before. It does not block.
	SpeakSoon()
	// SendDigits presses keys.
	SendDigits(ctx context.Context, digits string) error
	// Transfer hands the call to a number, and returns when somebody else has it.
	Transfer(ctx context.Context, to string) error
}

// Signal is what a detector hears.
type Signal int32

// Signals; several at once are or-ed. Machine: the way it speaks is a machine's, a hint and no ground to hang up by itself. Beep: a machine wants a message now. Fax: a
// fax answers.
const (
	Nothing Signal = 0
	Machine Signal = 1
	Beep    Signal = 2
	Fax     Signal = 4
)

// Detector listens to the person's side, frame by frame, from one goroutine. It tells each thing once.
type Detector interface {
	Hear(frame []byte) Signal
}

// OptedOut is told at once, before anything else is said, that the person asked not to be called again. It must make that last and return soon.
type OptedOut func(words string, at time.Time)

// Result is how a conversation went.
type Result struct {
	// Cause is why we end the call; empty: the leg was gone.
	Cause call.Cause
	// Outcome and Reached are contract.md's outcome (empty: null) and disposition.
	Outcome, Reached string
	// UnlistedOutcome is the last outcome that the agent gave and that is not one of its outcomes.
	UnlistedOutcome string
	Turns           []agent.Turn
	// Disclosure is nil if the disclosure was turned off, or if its playout is not known.
	Disclosure *agent.DisclosureRecord
	// Reworded are the words of the disclosure by the agent's own transcript, if they differ from its text.
	Reworded string
	// OptedOut, and the time for which a call back was agreed.
	OptedOut   bool
	CallbackAt *time.Time
	// FirstAudio is how long after the beginning the agent was first heard; zero: never.
	FirstAudio time.Duration
	// Unheard is how many frames the agent never got, Unsaid how much it said that had no room, Trimmed how many frames of silence were left out.
	Unheard, Trimmed int64
	Unsaid           time.Duration
}

// Conversation is one. NextFrame, HearFrame and HearDigit are the line's; Run is the conversation's own goroutine.
type Conversation struct {
	session  agent.Session
	settings Settings
	leg      Leg
	detector Detector
	optedOut OptedOut

	mu      sync.Mutex
	queue   playout
	rec     Recorder
	waiting heard
	hush    [agent.FrameBytes]byte

	woken    chan struct{}
	goodbye  chan farewell
	results  chan result
	signals  atomic.Int32
	heardAt  atomic.Int64 // when the person was last loud, in ns
	spokeAt  atomic.Int64
	loudness atomic.Int64 // loud frames of the person's

	state
}

// farewell is what a drain has said before it ends the call.
type farewell struct {
	text  string
	cause call.Cause
}

// result of a tool that took time.
type result struct {
	id, tool string
	err      error
}

// New joins a session with a leg. leg and detector may be nil. Nothing happens before Run.
func New(session agent.Session, settings Settings, leg Leg, detector Detector, optedOut OptedOut) *Conversation {
	if longest := settings.Agent.Longest(); settings.Longest <= 0 || settings.Longest > longest {
		settings.Longest = longest
	}
	if settings.Zone == nil {
		settings.Zone = time.UTC
	}
	c := &Conversation{
		session: session, settings: settings, leg: leg, detector: detector, optedOut: optedOut,
		woken: make(chan struct{}, 1), goodbye: make(chan farewell, 1), results: make(chan result, 8),
	}
	for i := range c.hush {
		c.hush[i] = silence
	}
	c.state.transcript, c.state.cuts = newTranscript(), map[string]bool{}
	return c
}

// NextFrame fills dst with the next 20 ms of the agent. It returns false if there is nothing to send.
// It neither blocks nor allocates.
func (c *Conversation) NextFrame(dst []byte) bool {
	now := time.Now()
	c.mu.Lock()
	if c.queue.halted {
		c.mu.Unlock()
		return false
	}
	c.queue.now = now
	spoke, moved := c.queue.next(dst)
	if c.rec != nil {
		person, said := c.waiting.pop(), c.hush[:]
		if person == nil {
			person = c.hush[:]
		}
		if spoke {
			said = dst
		}
		c.rec.Tick(person, said)
	}
	c.mu.Unlock()
	if moved {
		c.wake()
	}
	if spoke && loud(dst) {
		c.spokeAt.Store(now.UnixNano())
	}
	return spoke
}

// FrameUnsent records that the frame that NextFrame returned last was not sent. The transcript and the record of the
// disclosure do not count it as played.
func (c *Conversation) FrameUnsent() {
	c.mu.Lock()
	c.queue.unsent()
	c.mu.Unlock()
}

// HearFrame takes 20 ms of the person's.
func (c *Conversation) HearFrame(frame []byte) {
	c.session.HearAudio(frame)
	if loud(frame) {
		c.heardAt.Store(time.Now().UnixNano())
		c.loudness.Add(1)
	}
	c.mu.Lock()
	if c.rec != nil {
		c.waiting.push(frame)
	}
	c.mu.Unlock()
	if c.detector == nil {
		return
	}
	if signal := c.detector.Hear(frame); signal != Nothing {
		c.signals.Or(int32(signal))
		c.wake()
	}
}

// HearDigit takes a key that the person pressed.
func (c *Conversation) HearDigit(digit byte) {
	c.heardAt.Store(time.Now().UnixNano())
	c.session.HearDigit(digit)
}

// Record keeps both sides from now on; nil: no more.
func (c *Conversation) Record(rec Recorder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec, c.waiting = rec, heard{}
}

// Goodbye has the agent say a sentence and then ends the call with the cause. Only the first counts.
func (c *Conversation) Goodbye(text string, cause call.Cause) {
	select {
	case c.goodbye <- farewell{text, cause}:
	default:
	}
}

func (c *Conversation) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// Run holds the conversation until the agent or a rule ends it, or until ctx ends because the leg is
// gone. From then on no audio of the agent is sent, so that the transcript contains what was sent until
// then. The caller must hang up the leg afterwards.
func (c *Conversation) Run(ctx context.Context) Result {
	work, stop := context.WithCancel(ctx)
	defer stop()
	c.begun = time.Now()
	c.heardAt.Store(c.begun.UnixNano())
	c.session.Begin()
	timer := time.NewTimer(0)
	defer timer.Stop()
	events := c.session.Events()
	for !c.over {
		select {
		case <-ctx.Done():
			c.halt()
			c.overhear(work, events)
			c.end("")
		case e, open := <-events:
			if !open {
				e = agent.Event{Kind: agent.Closed}
				events = nil
			}
			c.on(work, e)
		case <-c.woken:
			c.look()
		case done := <-c.results:
			c.onResult(done)
		case last := <-c.goodbye:
			c.part(last.text, last.cause)
		case <-timer.C:
		}
		timer.Reset(c.due(time.Now()))
	}
	c.halt()
	c.session.Close()
	c.lastWords(events)
	if !c.quoteLimit.IsZero() {
		c.reportOptOut("")
	}
	return c.result()
}

// overhear stays with the agent for a moment after the person has hung up while talking: what was said last is written down, and an opt-out in it counts. The agent hears
// silence meanwhile, by which it knows that the sentence is over.
func (c *Conversation) overhear(ctx context.Context, events <-chan agent.Event) {
	if c.closing != nil || events == nil || c.loudness.Load() < spoke || time.Since(time.Unix(0, c.heardAt.Load())) > justNow {
		return
	}
	tick, limit := time.NewTicker(agent.Duration(agent.FrameBytes)), time.NewTimer(lastSentence)
	defer tick.Stop()
	defer limit.Stop()
	for {
		select {
		case <-limit.C:
			return
		case <-tick.C:
			c.session.HearAudio(c.hush[:])
		case e, open := <-events:
			switch {
			case !open, e.Kind == agent.TurnDone:
				return
			case e.Kind == agent.Failed, e.Kind == agent.Closed:
				c.unheard += e.Dropped
				return
			case e.Kind == agent.ToolCall && (e.Tool == agent.ToolCallback || e.Tool == agent.ToolStopRecording):
				c.on(ctx, e)
			default:
				c.onLate(e)
			}
		}
	}
}

// lastWords reads the events that a closed session still has: what was said, and an outcome or an
// opt-out that the agent gave at the last moment.
func (c *Conversation) lastWords(events <-chan agent.Event) {
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	for events != nil {
		select {
		case e, open := <-events:
			if !open {
				return
			}
			c.unheard += e.Dropped
			c.onLate(e)
		case <-limit.C:
			go func() { // whatever it is, it does not hold up the end of the call
				for range events { //nolint:revive // read to the end
				}
			}()
			return
		}
	}
}

// onLate handles an event that arrives after the last frame was sent. It completes the transcript and
// the outcome. Nothing is said any more.
func (c *Conversation) onLate(e agent.Event) {
	switch e.Kind {
	case agent.Said:
		c.said(e, time.Now())
	case agent.Audio:
		c.arrived(e)
	case agent.ItemDone:
		c.transcript.item(e.Item).complete = true
	case agent.Disclosed:
		c.disclosed = e.Item
	case agent.ToolCall:
		c.onLateTool(e)
	}
}

func (c *Conversation) answer(id string, result map[string]any) {
	if text, err := json.Marshal(result); err == nil {
		c.session.ToolResult(id, text)
	}
}
