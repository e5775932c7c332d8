package conversation

import (
	"context"
	"strings"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

const (
	// closeDelay is how long the audio queue must be empty before a closing call ends.
	closeDelay = 1500 * time.Millisecond
	// sentenceDelay replaces closeDelay while the conversation waits for a requested sentence.
	sentenceDelay = 5 * time.Second
	// closeTimeout is the longest time between the decision to end a call and its end. After that, the
	// call ends even if audio is still queued.
	closeTimeout = time.Minute
	// messageSilence is the length of the silence after which the agent leaves a message at a machine
	// that does not beep. messageTimeout limits the wait for such a silence.
	messageSilence, messageTimeout = 2 * time.Second, 30 * time.Second
	// A beep counts as the beep of an answering machine only within beepPeriod of the call's start,
	// and only before the person has had beepTurns turns. A later beep can have other causes.
	beepPeriod, beepTurns = 45 * time.Second, 3
	// lastSentenceTimeout limits the wait for missing transcripts after the end of the call.
	lastSentenceTimeout = 2 * time.Second
	// A person who spoke within recentSpeech before the hang-up can have said an undetected sentence.
	recentSpeech = 3 * time.Second
	// A person counts as having spoken after minLoudFrames loud frames (300 ms).
	minLoudFrames = 15
)

// state contains the fields that only the goroutine of Run accesses.
type state struct {
	transcript transcript
	// reportedTurns is the number of turns for which Spoken was called.
	reportedTurns int
	droppedItems  map[string]bool // items whose further audio is dropped
	begun         time.Time
	first         time.Duration
	over          bool
	cause         callstate.Cause
	broken        bool
	unheard       int64

	outcome, reached string
	unlisted         string // last outcome that the agent's list does not contain
	opted            bool
	// quoteLimit is the time at which the opt-out is reported even if the transcript of the person's
	// last words has not arrived. It is zero if no opt-out waits for a transcript.
	quoteLimit time.Time
	// untranscribedItems contains the person's utterances whose transcripts have not arrived.
	// Transcripts can arrive in any order.
	untranscribedItems map[string]bool
	transferred        bool
	callback           *time.Time

	notice
	// lastDisclosureItem is the id of the last item of the disclosure. It is empty until the agent has
	// sent all of the disclosure.
	lastDisclosureItem string

	closing *closing
	// messageWaitStart is the time at which the agent began to wait for a beep or for silence
	// before it leaves its message. It is zero if the agent does not wait.
	messageWaitStart time.Time
	hint             bool
}

// closing is the state of a call that ends after all queued audio was played.
type closing struct {
	cause callstate.Cause
	limit time.Time
	// awaitsSentence is true while the conversation waits for audio of a requested sentence, or for
	// another call of the tool end_call.
	awaitsSentence bool
	// awaitsOutcome is true while the conversation waits for another call of end_call, because the
	// outcome of the first call was refused. awaitsSentence is then true too.
	awaitsOutcome bool
	// lastSentenceOnly is true if only the requested sentence and the disclosure may still be played.
	lastSentenceOnly bool
	// audioSent is true if the agent has sent all its audio.
	audioSent bool
	// emptySince is the time at which the queue became empty. It is zero if the queue is not empty.
	emptySince time.Time
}

func (c *Conversation) handle(ctx context.Context, e agent.Event) {
	now := time.Now()
	switch e.Kind {
	case agent.Audio:
		c.onAudio(e)
	case agent.ItemDone:
		c.transcript.item(e.Item).complete = true
		c.mu.Lock()
		if !c.droppedItems[e.Item] {
			c.queue.finishItem(e.Item)
		}
		c.mu.Unlock()
		c.update()
	case agent.SpeechStarted:
		c.transcript.beginItem(e.Item, now)
		c.awaitTranscript(e.Item)
		c.heardAt.Store(now.UnixNano())
		c.discardAudio()
	case agent.Clear:
		c.discardAudio()
	case agent.Disclosed:
		c.lastDisclosureItem = e.Item
	case agent.Noticed:
		c.queueNoticeMark(e.Item)
	case agent.Utterance:
		c.addUtterance(e, now)
		c.reportTurns()
	case agent.ToolCall:
		c.onTool(ctx, e)
	case agent.TurnDone:
		if c.closing != nil && !c.closing.awaitsSentence {
			c.closing.audioSent = true
		}
		c.update()
	case agent.Failed:
		c.unheard += e.Dropped
		if c.closing == nil {
			c.broken = true
			c.end(callstate.AgentError)
			return
		}
		c.closing.audioSent, c.closing.awaitsSentence = true, false
		c.update()
	case agent.Closed:
		c.unheard += e.Dropped
		c.endAfterAudio(callstate.NormalClearing)
		c.closing.audioSent, c.closing.awaitsSentence = true, false
		c.update()
	}
}

// reportTurns calls Spoken for the turns that were added since the last call.
func (c *Conversation) reportTurns() {
	if c.settings.Spoken == nil {
		return
	}
	for ; c.reportedTurns < len(c.transcript.entries); c.reportedTurns++ {
		c.settings.Spoken(c.reportedTurns+1, c.transcript.entries[c.reportedTurns].turn)
	}
}

// awaitTranscript stores that the transcript of an item is missing. Without an item, the
// transcript could not be assigned.
func (c *Conversation) awaitTranscript(item string) {
	if item != "" && len(c.untranscribedItems) < maxItems {
		c.untranscribedItems[item] = true
	}
}

// countAudio adds the length of the audio to its item, even if the audio is dropped later.
func (c *Conversation) countAudio(e agent.Event) {
	it := c.transcript.item(e.Item)
	it.disclosure = it.disclosure || e.Disclosure
	if !it.complete {
		it.arrived += len(e.Audio)
	}
}

func (c *Conversation) onAudio(e agent.Event) {
	c.countAudio(e)
	if c.droppedItems[e.Item] {
		return
	}
	// While an answering machine plays its greeting, only audio with Keep (the disclosure) is played.
	if !c.messageWaitStart.IsZero() && !e.Keep {
		c.dropItem(e.Item)
		c.session.Interrupted(e.Item, 0)
		return
	}
	if c.isDroppedAudio(e) {
		c.dropItem(e.Item)
		c.session.Interrupted(e.Item, 0)
		return
	}
	if c.closing != nil {
		c.closing.emptySince = time.Time{}
		if e.Asked { // this audio belongs to the requested sentence, not to the disclosure
			c.closing.awaitsSentence = false
		}
	}
	c.mu.Lock()
	idle := c.queue.queuedBytes == 0
	c.queue.addAudio(e.Item, e.Audio, e.Keep)
	c.mu.Unlock()
	if idle && c.leg != nil {
		c.leg.SpeakSoon()
	}
}

// isDroppedAudio reports whether this audio is something that the model adds to a voicemail message
// or a farewell. Audio of an agent of kind media_ws is not dropped, because such an agent does not
// mark the audio of the requested sentence.
func (c *Conversation) isDroppedAudio(e agent.Event) bool {
	return c.closing != nil && c.closing.lastSentenceOnly && !e.Keep && c.settings.Agent.Kind != agent.MediaWS
}

func (c *Conversation) dropItem(item string) {
	if len(c.droppedItems) >= maxItems {
		clear(c.droppedItems)
	}
	c.droppedItems[item] = true
}

// discardAudio discards the queued audio after an interruption, except audio that the person must
// hear. It does nothing if the call is about to end, because the last sentence cannot be
// interrupted.
func (c *Conversation) discardAudio() {
	if c.closing != nil {
		return
	}
	c.recordPlayout()
	c.mu.Lock()
	cuts := c.queue.discardQueued()
	c.mu.Unlock()
	for _, one := range cuts {
		c.dropItem(one.id)
		c.cancelNotice(one)
		c.session.Interrupted(one.id, one.played)
	}
}

func (c *Conversation) update() {
	now := time.Now()
	c.recordPlayout()
	c.mu.Lock()
	played, dry := c.queue.removePlayed(), c.queue.queuedBytes == 0
	c.mu.Unlock()
	for _, item := range played {
		if of, mark := strings.CutPrefix(item, noticeMark); mark {
			c.onNoticePlayed(of)
			continue
		}
		c.session.Played(item)
	}
	signals := Signal(c.signals.Swap(0))
	if signals&Machine != 0 {
		c.hint = true
	}
	if signals&Beep != 0 {
		c.onBeep(now)
	}
	if signals&Fax != 0 {
		c.onFax(now)
	}
	if c.closing == nil {
		return
	}
	if !dry {
		c.closing.emptySince = time.Time{}
	} else if c.closing.audioSent && !c.closing.awaitsSentence {
		c.end(c.closing.cause)
	} else if c.closing.emptySince.IsZero() {
		c.closing.emptySince = now
	}
}

func (c *Conversation) recordPlayout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordPieces(c.queue.pieces[:min(c.queue.headIndex+1, len(c.queue.pieces))])
}

func (c *Conversation) recordPieces(pieces []*piece) {
	for _, p := range pieces {
		if !p.began.IsZero() && c.first == 0 {
			c.first = max(p.began.Sub(c.begun), 1)
		}
		c.transcript.addPlayed(p)
	}
	for _, of := range c.queue.unsentShares {
		c.transcript.subtractUnsent(of)
	}
	c.queue.unsentShares = c.queue.unsentShares[:0]
}

// stopAudio ends the playback. Audio that is still queued will not be sent.
func (c *Conversation) stopAudio() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordPieces(c.queue.stop())
}

// endAfterAudio makes the call end when all queued audio was played.
func (c *Conversation) endAfterAudio(cause callstate.Cause) {
	if c.closing == nil {
		c.closing = &closing{cause: cause, limit: time.Now().Add(closeTimeout)}
	}
}

func (c *Conversation) closeWith(text string, cause callstate.Cause) {
	if c.closing != nil {
		return
	}
	c.messageWaitStart = time.Time{}
	c.discardAudio()
	c.endAfterAudio(cause)
	c.closing.lastSentenceOnly = true
	if text == "" {
		c.closing.audioSent = true
	} else {
		c.closing.awaitsSentence = true
		c.session.Say(text)
	}
	c.update()
}

func (c *Conversation) end(cause callstate.Cause) {
	if !c.over {
		c.over, c.cause = true, cause
	}
}

// applyLimits executes the action of every limit that has been reached, for example the end of the
// call. It returns the time until the next limit.
func (c *Conversation) applyLimits(now time.Time) time.Duration {
	if c.over {
		return 0
	}
	next := c.begun.Add(c.settings.Longest)
	if !now.Before(next) {
		c.end(callstate.MaxDuration)
		return 0
	}
	if !c.quoteLimit.IsZero() {
		if !now.Before(c.quoteLimit) {
			c.reportOptOut("")
		} else {
			next = earlier(next, c.quoteLimit)
		}
	}
	loudest := time.Unix(0, max(c.heardAt.Load(), c.spokeAt.Load()))
	quiet := loudest.Add(c.settings.Agent.Silence())
	switch {
	case c.closing != nil:
		quiet = c.closing.limit
		if !c.closing.emptySince.IsZero() {
			linger := closeDelay
			if c.closing.awaitsSentence {
				linger = sentenceDelay
			}
			quiet = earlier(quiet, c.closing.emptySince.Add(linger))
		}
		if !now.Before(quiet) {
			c.end(c.closing.cause)
			return 0
		}
	case !c.messageWaitStart.IsZero():
		since := c.messageWaitStart
		if lastHeardAt := time.Unix(0, c.heardAt.Load()); lastHeardAt.After(since) {
			since = lastHeardAt
		}
		quiet = earlier(since.Add(messageSilence), c.messageWaitStart.Add(messageTimeout))
		if !now.Before(quiet) {
			c.leaveMessage()
			return c.applyLimits(now)
		}
	case !now.Before(quiet):
		c.end(callstate.SilenceTimeout)
		return 0
	}
	return earlier(next, quiet).Sub(now)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
