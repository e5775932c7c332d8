// Package conversation runs the conversations of calls. A Conversation connects the audio of a call
// with the session of an agent. It queues the agent's audio, measures which part of it was sent,
// and writes the transcript. It also limits the duration, handles answering machines, and executes
// the agent's tools. SIPCalls creates the media stream and the conversation of a SIP call.
package conversation

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

// Settings contains the settings of a conversation.
type Settings struct {
	Agent agent.Settings
	// Longest limits the duration of the conversation. If Longest is zero or above the limit of the
	// agent's kind, the limit of the kind applies.
	Longest time.Duration
	// Zone is the time zone of the person. If nil, it is UTC.
	Zone *time.Location
	// Disclosure is the text that the agent must speak first: the disclosure and the recording notice.
	// It is empty if the agent must speak neither.
	Disclosure string
	// Noticed is called once, after the whole recording notice was sent. Objected is called once if
	// the person objects to the recording, before the agent can speak again. Both must return quickly,
	// and both are nil if the call is not recorded.
	Noticed, Objected func()
	// Spoken is called for each turn when its text is known. number is the number of the turn,
	// starting at 1. The text of an agent's turn can contain words that are never sent, because the
	// person interrupts. Spoken must not block. It can be nil.
	Spoken func(number int, turn agent.Turn)
}

// Leg is the part of a call leg that a conversation uses. SendDigits and Transfer can block for a
// long time.
type Leg interface {
	// SpeakSoon is called after audio was added to an empty queue. It must not block.
	SpeakSoon()
	SendDigits(ctx context.Context, digits string) error
	// Transfer transfers the call to a number. It returns when the transfer has succeeded or failed.
	Transfer(ctx context.Context, to string) error
}

// Signal is a sound that a detector found in the person's audio.
type Signal int32

// Signals of one frame are combined by OR.
//
//   - Machine: the speech resembles a machine's greeting. This is not a reason to hang up.
//   - Beep: an answering machine starts to record.
//   - Fax: a fax machine answered.
const (
	Nothing Signal = 0
	Machine Signal = 1
	Beep    Signal = 2
	Fax     Signal = 4
)

// Detector analyses the person's audio frame by frame, in one goroutine. It reports each sound in
// one frame only, even if the sound lasts longer.
type Detector interface {
	Hear(frame []byte) Signal
}

// OptedOut is called when the person has asked not to be called again, before the agent can speak
// again. It must store the opt-out permanently and return quickly.
type OptedOut func(words string, at time.Time)

// Result is the result of a conversation.
type Result struct {
	// Cause is the cause with which the caller of Run must hang up. It is empty if the leg has already
	// ended.
	Cause callstate.Cause
	// Outcome and Reached are the outcome and the disposition of the call. If Outcome is empty, the
	// API returns null.
	Outcome, Reached string
	// UnlistedOutcome is the last outcome from the agent that is not in the agent's list. It is empty
	// if there was none.
	UnlistedOutcome string
	Turns           []agent.Turn
	// Disclosure is nil if the agent had to speak neither a disclosure nor a recording notice. It is
	// also nil if the agent did not mark the audio of the disclosure.
	Disclosure *agent.DisclosureRecord
	// Reworded is the agent's transcript of the disclosure. It is empty if the transcript equals the
	// text that the agent had to speak.
	Reworded string
	// OptedOut is true if the person opted out. CallbackAt is the agreed time of another call, or nil.
	OptedOut   bool
	CallbackAt *time.Time
	// FirstAudio is the time from the start of the conversation to the agent's first frame. It is zero
	// if the agent sent no audio.
	FirstAudio time.Duration
	// Unheard is the number of the person's frames that the agent did not receive.
	Unheard int64
	// Trimmed is the number of the agent's silent frames that were dropped.
	Trimmed int64
	// Unsaid is the length of the agent's audio that did not fit into the queue.
	Unsaid time.Duration
}

// Conversation is one conversation. The media stream calls NextFrame, FrameUnsent, HearFrame and
// HearDigit. Run must be called only once.
type Conversation struct {
	session  agent.Session
	settings Settings
	leg      Leg
	detector Detector
	optedOut OptedOut

	mu            sync.Mutex
	queue         playout
	rec           Recorder
	recorderQueue frameRing
	silentFrame   [agent.FrameBytes]byte

	woken    chan struct{}
	results  chan result
	signals  atomic.Int32
	heardAt  atomic.Int64 // last time at which the person spoke or pressed a key, in ns since 1970
	spokeAt  atomic.Int64
	loudness atomic.Int64 // number of loud frames of the person

	state
}

type result struct {
	id, tool string
	err      error
}

// New connects a session with a leg. leg and detector can be nil. No audio is sent before Run.
func New(session agent.Session, settings Settings, leg Leg, detector Detector, optedOut OptedOut) *Conversation {
	if longest := settings.Agent.Longest(); settings.Longest <= 0 || settings.Longest > longest {
		settings.Longest = longest
	}
	if settings.Zone == nil {
		settings.Zone = time.UTC
	}
	c := &Conversation{
		session: session, settings: settings, leg: leg, detector: detector, optedOut: optedOut,
		woken: make(chan struct{}, 1), results: make(chan result, 8),
	}
	for i := range c.silentFrame {
		c.silentFrame[i] = silence
	}
	c.state.transcript = newTranscript()
	c.state.droppedItems, c.state.untranscribedItems = map[string]bool{}, map[string]bool{}
	return c
}

// NextFrame writes the next 20 ms of the agent's audio to dst. It returns false if there is no
// audio to send. It does not block and does not allocate memory.
func (c *Conversation) NextFrame(dst []byte) bool {
	now := time.Now()
	c.mu.Lock()
	if c.queue.stopped {
		c.mu.Unlock()
		return false
	}
	c.queue.now = now
	spoke, moved := c.queue.nextFrame(dst)
	if c.rec != nil {
		person, agentAudio := c.recorderQueue.popFrame(), c.silentFrame[:]
		if person == nil {
			person = c.silentFrame[:]
		}
		if spoke {
			agentAudio = dst
		}
		c.rec.Tick(person, agentAudio)
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

// FrameUnsent must be called if the last frame from NextFrame was not sent. The transcript and the
// record of the disclosure then do not include this frame.
func (c *Conversation) FrameUnsent() {
	c.mu.Lock()
	c.queue.revertFrame()
	c.mu.Unlock()
}

// HearFrame passes 20 ms of the person's audio to the conversation.
func (c *Conversation) HearFrame(frame []byte) {
	c.session.HearAudio(frame)
	if loud(frame) {
		c.heardAt.Store(time.Now().UnixNano())
		c.loudness.Add(1)
	}
	c.mu.Lock()
	if c.rec != nil {
		c.recorderQueue.push(frame)
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

// HearDigit passes the DTMF digit of a key that the person pressed to the conversation.
func (c *Conversation) HearDigit(digit byte) {
	c.heardAt.Store(time.Now().UnixNano())
	c.session.HearDigit(digit)
}

// Record starts to record both sides with rec. If rec is nil, the recording ends.
func (c *Conversation) Record(rec Recorder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec, c.recorderQueue = rec, frameRing{}
}

func (c *Conversation) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// Run runs the conversation until the agent, a limit or the end of ctx ends it. After Run has
// returned, no more audio of the agent is sent, so the transcript matches the sent audio. If the
// leg still exists, the caller must hang up.
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
			c.stopAudio()
			spoke := c.closing == nil && c.loudness.Load() >= minLoudFrames &&
				time.Since(time.Unix(0, c.heardAt.Load())) <= recentSpeech
			c.awaitLastSentence(work, events, spoke)
			clear(c.untranscribedItems)
			c.end("")
		case e, open := <-events:
			if !open {
				e = agent.Event{Kind: agent.Closed}
				events = nil
			}
			c.handle(work, e)
		case <-c.woken:
			c.update()
		case done := <-c.results:
			c.onResult(done)
		case <-timer.C:
		}
		timer.Reset(c.applyLimits(time.Now()))
	}
	c.stopAudio()
	c.awaitLastSentence(work, events, false)
	c.session.Close()
	c.handleLateEvents(events)
	if !c.quoteLimit.IsZero() {
		c.reportOptOut("")
	}
	return c.result()
}

// awaitLastSentence waits for the transcripts of all sentences of the person, because a sentence
// can be an opt-out. It waits for at most lastSentenceTimeout. If awaitResponse is true, it also
// waits for the agent's response to the last sentence, which can contain a tool call.
func (c *Conversation) awaitLastSentence(ctx context.Context, events <-chan agent.Event, awaitResponse bool) {
	tick, limit := time.NewTicker(agent.Duration(agent.FrameBytes)), time.NewTimer(lastSentenceTimeout)
	defer tick.Stop()
	defer limit.Stop()
	for events != nil && (awaitResponse || len(c.untranscribedItems) > 0) {
		select {
		case <-limit.C:
			return
		case <-tick.C:
			c.session.HearAudio(c.silentFrame[:])
		case e, open := <-events:
			switch {
			case !open:
				return
			case e.Kind == agent.Failed, e.Kind == agent.Closed:
				c.unheard += e.Dropped
				return
			case e.Kind == agent.TurnDone:
				awaitResponse = false
			case e.Kind == agent.ToolCall && (e.Tool == agent.ToolCallback || e.Tool == agent.ToolStopRecording):
				c.handle(ctx, e)
			default:
				c.onLate(e)
			}
		}
	}
}

// handleLateEvents handles the remaining events of a closed session. They can contain words, an
// outcome or an opt-out from the end of the call.
func (c *Conversation) handleLateEvents(events <-chan agent.Event) {
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
			go func() { // the remaining events must not delay the end of the call
				for range events { //nolint:revive // the loop ends when the session closes the channel
				}
			}()
			return
		}
	}
}

// onLate handles an event that arrives after the last frame was sent. Such an event can only add
// text to the transcript, set the outcome, or opt the person out.
func (c *Conversation) onLate(e agent.Event) {
	switch e.Kind {
	case agent.Utterance:
		c.addUtterance(e, time.Now())
	case agent.Audio:
		c.countAudio(e)
	case agent.ItemDone:
		c.transcript.item(e.Item).complete = true
	case agent.Disclosed:
		c.lastDisclosureItem = e.Item
	case agent.ToolCall:
		c.onLateTool(e)
	}
}

func (c *Conversation) answer(id string, result map[string]any) {
	if text, err := json.Marshal(result); err == nil {
		c.session.ToolResult(id, text)
	}
}
