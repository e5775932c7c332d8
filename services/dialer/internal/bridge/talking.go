package bridge

import (
	"context"
	"strings"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/call"
)

const (
	// lingering is how long a queue that ran dry may stay so before a closing call is over, when nobody says that the turn is done: asked for a
	// sentence of its own, an agent needs longer to begin.
	lingering, beginning = 1500 * time.Millisecond, 5 * time.Second
	// closingMost bounds the end of a call, whatever is still queued.
	closingMost = time.Minute
	// pause is the silence after which a machine that does not beep is spoken to, and pauseMost how long that is waited for.
	pause, pauseMost = 2 * time.Second, 30 * time.Second
	// beepWithin is until when a beep is a machine's: later it is something else, and so it is once the person has said so much.
	beepWithin, beepTurns = 45 * time.Second, 3
	// lastSentence is how long a sentence is waited for in which somebody hung up, who was heard justNow before.
	lastSentence, justNow = 2 * time.Second, 3 * time.Second
	// spoke is from how many loud frames on somebody was there: 300 ms.
	spoke = 15
)

// state is Run's own.
type state struct {
	transcript transcript
	cuts       map[string]bool // items of which nothing more is played
	begun      time.Time
	first      time.Duration
	over       bool
	cause      call.Cause
	broken     bool
	unheard    int64

	outcome, reached string
	unlisted         string // the last outcome that is not one of the agent's outcomes
	opted            bool
	quoteLimit       time.Time // when an opt-out without a quote is reported; zero if none waits
	transferred      bool
	callback         *time.Time

	notice
	// disclosed is the item that ends the disclosure; empty while the agent has not completed it.
	disclosed string

	closing *closing
	// leaving: a machine answered, and the message waits for its beep or silence since then.
	leaving time.Time
	hint    bool
}

// closing is a call that ends once everything was said.
type closing struct {
	cause call.Cause
	limit time.Time
	// asked: a new sentence or another end_call was requested and has not arrived yet.
	asked bool
	// correcting: asked is true because an end_call with an unlisted outcome was refused.
	correcting bool
	// last: only the sentence that was asked for is said.
	last bool
	// said: the agent is done.
	said bool
	// dry is since when nothing was queued.
	dry time.Time
}

// on takes one event of the agent's.
func (c *Conversation) on(ctx context.Context, e agent.Event) {
	now := time.Now()
	switch e.Kind {
	case agent.Audio:
		c.onAudio(e)
	case agent.ItemDone:
		c.transcript.item(e.Item).complete = true
		c.mu.Lock()
		if !c.cuts[e.Item] {
			c.queue.finish(e.Item)
		}
		c.mu.Unlock()
		c.look()
	case agent.SpeechStarted:
		c.transcript.begin(e.Item, now)
		c.heardAt.Store(now.UnixNano())
		c.flush()
	case agent.Clear:
		c.flush()
	case agent.Disclosed:
		c.disclosed = e.Item
	case agent.Noticed:
		c.noticed(e.Item)
	case agent.Said:
		c.said(e, now)
	case agent.ToolCall:
		c.onTool(ctx, e)
	case agent.TurnDone:
		if c.closing != nil && !c.closing.asked {
			c.closing.said = true
		}
		c.look()
	case agent.Failed:
		c.unheard += e.Dropped
		if c.closing == nil {
			c.broken = true
			c.end(call.AgentError)
			return
		}
		c.closing.said, c.closing.asked = true, false
		c.look()
	case agent.Closed:
		c.unheard += e.Dropped
		c.close(call.NormalClearing)
		c.closing.said, c.closing.asked = true, false
		c.look()
	}
}

// arrived counts audio of the agent, whether it is sent or not.
func (c *Conversation) arrived(e agent.Event) {
	it := c.transcript.item(e.Item)
	it.disclosure = it.disclosure || e.Disclosure
	if !it.complete {
		it.arrived += len(e.Audio)
	}
}

// onAudio queues audio of the agent.
func (c *Conversation) onAudio(e agent.Event) {
	c.arrived(e)
	if c.cuts[e.Item] {
		return
	}
	if !c.leaving.IsZero() && !e.Keep { // over a machine's greeting nothing is said
		c.drop(e.Item)
		c.session.Interrupted(e.Item, 0)
		return
	}
	if c.overdue(e) {
		c.drop(e.Item)
		c.session.Interrupted(e.Item, 0)
		return
	}
	if c.closing != nil {
		c.closing.dry = time.Time{}
		if e.Asked { // and not the disclosure, which may still be said
			c.closing.asked = false
		}
	}
	c.mu.Lock()
	idle := c.queue.depth == 0
	c.queue.add(e.Item, e.Audio, e.Keep)
	c.mu.Unlock()
	if idle && c.leg != nil {
		c.leg.SpeakSoon()
	}
}

// overdue reports whether audio must not be sent any more: behind a voicemail message or a farewell the
// model adds nothing. An agent of kind media_ws does not mark what it was asked to say.
func (c *Conversation) overdue(e agent.Event) bool {
	return c.closing != nil && c.closing.last && !e.Keep && c.settings.Agent.Kind != agent.MediaWS
}

// drop leaves out what still comes of an item.
func (c *Conversation) drop(item string) {
	if len(c.cuts) >= mostItems {
		clear(c.cuts)
	}
	c.cuts[item] = true
}

// flush is a barge-in: what is queued is stale, but for what is to be heard in any case. The end of a call is said to its end.
func (c *Conversation) flush() {
	if c.closing != nil {
		return
	}
	c.recordPlayout()
	c.mu.Lock()
	cuts := c.queue.flush()
	c.mu.Unlock()
	for _, one := range cuts {
		c.drop(one.id)
		c.unnotice(one)
		c.session.Interrupted(one.id, one.played)
	}
}

// look follows the line: what was played, what was heard, whether a closing call is over.
func (c *Conversation) look() {
	now := time.Now()
	c.recordPlayout()
	c.mu.Lock()
	played, dry := c.queue.collect(), c.queue.depth == 0
	c.mu.Unlock()
	for _, item := range played {
		if of, mark := strings.CutPrefix(item, noticeMark); mark {
			c.recordable(of)
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
		c.closing.dry = time.Time{}
	} else if c.closing.said && !c.closing.asked {
		c.end(c.closing.cause)
	} else if c.closing.dry.IsZero() {
		c.closing.dry = now
	}
}

// recordPlayout writes into the transcript what has been sent of the queued items.
func (c *Conversation) recordPlayout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordPieces(c.queue.pieces[:min(c.queue.head+1, len(c.queue.pieces))])
}

func (c *Conversation) recordPieces(pieces []*piece) {
	for _, p := range pieces {
		if !p.began.IsZero() && c.first == 0 {
			c.first = max(p.began.Sub(c.begun), 1)
		}
		c.transcript.play(p)
	}
	for _, of := range c.queue.lost {
		c.transcript.unplay(of)
	}
	c.queue.lost = c.queue.lost[:0]
}

// halt ends the playout. What is still queued is never sent.
func (c *Conversation) halt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordPieces(c.queue.halt())
}

// close ends the call when everything was said.
func (c *Conversation) close(cause call.Cause) {
	if c.closing == nil {
		c.closing = &closing{cause: cause, limit: time.Now().Add(closingMost)}
	}
}

// part says a last sentence of ours, and closes.
func (c *Conversation) part(text string, cause call.Cause) {
	if c.closing != nil {
		return
	}
	c.leaving = time.Time{}
	c.flush()
	c.close(cause)
	c.closing.last = true
	if text == "" {
		c.closing.said = true
	} else {
		c.closing.asked = true
		c.session.Say(text)
	}
	c.look()
}

func (c *Conversation) end(cause call.Cause) {
	if !c.over {
		c.over, c.cause = true, cause
	}
}

// due acts on whatever time has come, and tells how long it is to the next.
func (c *Conversation) due(now time.Time) time.Duration {
	if c.over {
		return 0
	}
	next := c.begun.Add(c.settings.Longest)
	if !now.Before(next) {
		c.end(call.MaxDuration)
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
		if !c.closing.dry.IsZero() {
			linger := lingering
			if c.closing.asked {
				linger = beginning
			}
			quiet = earlier(quiet, c.closing.dry.Add(linger))
		}
		if !now.Before(quiet) {
			c.end(c.closing.cause)
			return 0
		}
	case !c.leaving.IsZero():
		since := c.leaving
		if heard := time.Unix(0, c.heardAt.Load()); heard.After(since) {
			since = heard
		}
		quiet = earlier(since.Add(pause), c.leaving.Add(pauseMost))
		if !now.Before(quiet) {
			c.leave()
			return c.due(now)
		}
	case !now.Before(quiet):
		c.end(call.SilenceTimeout)
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
