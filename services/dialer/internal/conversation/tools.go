package conversation

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
)

var pressed = regexp.MustCompile(`^[0-9*#]{1,32}$`)

// quoteTimeout is how long, after the outcome opted_out, the conversation waits for the transcript
// of the person's last words. Then it reports the opt-out with the words that have arrived.
const quoteTimeout = 2 * time.Second

// arguments contains the arguments of all tools of the agent.
type arguments struct {
	Outcome string `json:"outcome"`
	Quote   string `json:"quote"`
	At      string `json:"at"`
	Kind    string `json:"kind"`
	To      string `json:"to"`
	Digits  string `json:"digits"`
}

func argumentsOf(e agent.Event) (args arguments) {
	if json.Unmarshal(e.Args, &args) != nil {
		return arguments{}
	}
	return args
}

// onTool executes a tool call. If the arguments are invalid, the result is a refusal with a reason.
func (c *Conversation) onTool(ctx context.Context, e agent.Event) {
	args := argumentsOf(e)
	switch e.Tool {
	case agent.ToolEndCall:
		c.endCall(e.ID, args.Outcome)
	case agent.ToolOptOut:
		c.optOut(args.Quote)
		c.answer(e.ID, map[string]any{"state": "noted", "next": "Say that it is noted, say goodbye and call end_call."})
	case agent.ToolCallback:
		c.callBack(e.ID, args.At)
	case agent.ToolVoicemail:
		c.onMachine(e.ID, args.Kind)
	case agent.ToolTransfer:
		c.transfer(ctx, e.ID, args.To)
	case agent.ToolStopRecording:
		c.stopRecording()
		c.answer(
			e.ID,
			map[string]any{
				"state": "done",
				"next":  "Say that nothing is recorded any more and that what was recorded is deleted; then go on.",
			},
		)
	case agent.ToolDigits:
		c.sendDigits(ctx, e.ID, args.Digits)
	default:
		c.answer(e.ID, map[string]any{"state": "refused", "reason": "there is no such tool"})
	}
}

// onLateTool handles a tool call that arrives after the end of the call. It accepts only an outcome
// and an opt-out, and sends no result to the agent.
func (c *Conversation) onLateTool(e agent.Event) {
	switch args := argumentsOf(e); e.Tool {
	case agent.ToolEndCall:
		c.settleOutcome(args.Outcome)
	case agent.ToolOptOut:
		c.optOut(args.Quote)
	}
}

// endCall makes the call end after all queued audio was played. If the first outcome is not in the
// agent's list, endCall refuses the tool call and returns the list. The conversation then waits for
// another call of end_call.
func (c *Conversation) endCall(id, outcome string) {
	first := c.closing == nil
	c.settleOutcome(outcome)
	c.endAfterAudio(callstate.NormalClearing)
	switch {
	case first && c.unlisted != "":
		c.closing.awaitsSentence, c.closing.awaitsOutcome = true, true
		c.answer(id, map[string]any{
			"state": "refused", "reason": "outcome is not one of the allowed values", "allowed": c.settings.Agent.OutcomeList(),
			"next": "Call end_call again with an allowed outcome.",
		})
		return
	case c.closing.awaitsOutcome:
		c.closing.awaitsSentence, c.closing.awaitsOutcome = false, false
	}
	c.answer(id, map[string]any{"state": "ending"})
	c.update()
}

// settleOutcome stores an outcome of the agent's list. The outcome opted_out is also an opt-out,
// with the person's last words as evidence. The transcript of these words can arrive later, so the
// conversation waits for it until quoteLimit.
func (c *Conversation) settleOutcome(outcome string) {
	if outcome == "" {
		return
	}
	if !slices.Contains(c.settings.Agent.OutcomeList(), outcome) {
		c.unlisted = outcome
		return
	}
	c.outcome = outcome
	if outcome != agent.OutcomeOptedOut || c.opted {
		return
	}
	c.opted = true
	if c.transcript.endsWithPerson() {
		c.reportOptOut("")
	} else {
		c.quoteLimit = time.Now().Add(quoteTimeout)
	}
}

// optOut reports the opt-out before the agent can speak again. It does nothing if the opt-out was
// already reported. If quote is empty, the person's last words are the evidence.
func (c *Conversation) optOut(quote string) {
	if c.opted && c.quoteLimit.IsZero() {
		return
	}
	c.opted = true
	c.reportOptOut(quote)
}

// reportOptOut ends the wait for the person's last words and calls the OptedOut callback. If quote
// is empty, the evidence is the last words whose transcript has arrived.
func (c *Conversation) reportOptOut(quote string) {
	c.quoteLimit = time.Time{}
	if quote == "" {
		quote = c.transcript.lastHeard()
	}
	if c.optedOut != nil {
		c.optedOut(callstate.Evidence(quote), time.Now())
	}
}

// callBack stores the agreed time of another call. A time without an offset is in the person's time
// zone.
func (c *Conversation) callBack(id, text string) {
	at, err := time.Parse(time.RFC3339, text)
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if err != nil {
			at, err = time.ParseInLocation(layout, text, c.settings.Zone)
		}
	}
	now := time.Now()
	switch {
	case err != nil:
		c.answer(id, map[string]any{"state": "refused", "reason": "at is no RFC 3339 date and time"})
	case !at.After(now):
		c.answer(
			id,
			map[string]any{
				"state":  "refused",
				"reason": "that time is past",
				"now":    now.In(c.settings.Zone).Format(time.RFC3339),
			},
		)
	// A call can be scheduled at most 366 days ahead
	// (docs/reference/api/call-requests.md#scheduled_for).
	case at.After(now.AddDate(1, 0, 1)):
		c.answer(id, map[string]any{"state": "refused", "reason": "that is more than a year ahead"})
	default:
		at = at.In(c.settings.Zone)
		c.callback = &at
		c.answer(id, map[string]any{"state": "noted", "at": at.Format(time.RFC3339)})
	}
}

// transfer transfers the call to a target in the agent's settings, by its name. So the model cannot
// choose another number.
func (c *Conversation) transfer(ctx context.Context, id, name string) {
	to, listed := c.settings.Agent.Transfers[name]
	if !listed || c.leg == nil {
		c.answer(id, map[string]any{"state": "refused", "reason": "nobody is to be reached under that name"})
		return
	}
	go func() { c.done(ctx, result{id, agent.ToolTransfer, c.leg.Transfer(ctx, to)}) }()
}

func (c *Conversation) sendDigits(ctx context.Context, id, digits string) {
	if !pressed.MatchString(digits) || c.leg == nil {
		c.answer(id, map[string]any{"state": "refused", "reason": "digits are 1 to 32 of 0-9, * and #"})
		return
	}
	go func() { c.done(ctx, result{id, agent.ToolDigits, c.leg.SendDigits(ctx, digits)}) }()
}

func (c *Conversation) done(ctx context.Context, r result) {
	select {
	case c.results <- r:
	case <-ctx.Done():
	}
}

func (c *Conversation) onResult(r result) {
	switch {
	case r.err != nil:
		c.answer(r.id, map[string]any{"state": "failed"})
	case r.tool == agent.ToolTransfer:
		c.transferred = true
		c.end(callstate.NormalClearing)
	default:
		c.answer(r.id, map[string]any{"state": "done"})
	}
}

// onMachine handles the tool voicemail_detected. If the machine is a phone menu or a call screening
// service, the conversation continues. If it is a fax machine, the call ends. For an answering
// machine, the agent's policy applies.
func (c *Conversation) onMachine(id, kind string) {
	switch kind {
	case agent.ReachedIVR, agent.ReachedScreening:
		c.reached = kind
		c.answer(id, map[string]any{"state": "noted", "next": "Go on: answer its questions, or press digits."})
		return
	case agent.ReachedFax:
		c.reached = kind
		c.end(callstate.NormalClearing)
		return
	}
	if !c.applyVoicemailPolicy(time.Now()) {
		c.answer(id, map[string]any{"state": "noted", "next": "Go on."})
	}
}

// applyVoicemailPolicy hangs up, or prepares the message. It returns false if the policy is to
// continue the conversation.
func (c *Conversation) applyVoicemailPolicy(now time.Time) (handled bool) {
	c.reached = agent.ReachedVoicemail
	switch policy := c.settings.Agent.OnVoicemail; {
	case policy == agent.VoicemailMessage && c.settings.Agent.Message != "":
		if c.messageWaitStart.IsZero() && c.closing == nil {
			c.messageWaitStart = now
			c.discardAudio()
		}
		return true
	case policy == agent.VoicemailHangUp || policy == agent.VoicemailMessage:
		c.end(callstate.NormalClearing)
		return true
	}
	return false
}

// onBeep applies the voicemail policy if the beep can come from an answering machine. If the call
// does not end, the agent leaves its message now.
func (c *Conversation) onBeep(now time.Time) {
	policy := c.settings.Agent.OnVoicemail
	machine := !c.messageWaitStart.IsZero() || c.hint || c.isEarly(now)
	if c.closing != nil || !machine || policy == "" || policy == agent.VoicemailGoOn {
		return
	}
	if c.applyVoicemailPolicy(now); !c.over {
		c.leaveMessage()
	}
}

// isEarly reports whether a sound can still mean that a machine answered: the call has just begun,
// and the person has had few turns.
func (c *Conversation) isEarly(now time.Time) bool {
	return now.Sub(c.begun) <= beepPeriod && c.transcript.personTurns() < beepTurns
}

// onFax ends the call if a fax tone is detected early in the call. If the policy is to continue,
// the tone has no effect.
func (c *Conversation) onFax(now time.Time) {
	policy := c.settings.Agent.OnVoicemail
	if c.closing != nil || !c.isEarly(now) || policy == "" || policy == agent.VoicemailGoOn {
		return
	}
	c.reached = agent.ReachedFax
	c.end(callstate.NormalClearing)
}

func (c *Conversation) leaveMessage() {
	c.closeWith(c.settings.Agent.VoicemailText(), callstate.NormalClearing)
}

// result returns the result of the conversation, as
// docs/reference/api/calls.md#disposition-and-outcome describes it.
func (c *Conversation) result() Result {
	c.mu.Lock()
	r := Result{
		Cause: c.cause, Turns: c.transcript.sortedTurns(), Disclosure: c.disclosureRecord(), Reworded: c.rewordedDisclosure(),
		UnlistedOutcome: c.unlisted,
		OptedOut:        c.opted, CallbackAt: c.callback, FirstAudio: c.first,
		Unheard: c.unheard, Trimmed: c.queue.trimmed, Unsaid: agent.Duration(int(c.queue.dropped)),
	}
	c.mu.Unlock()
	personHeard := c.transcript.personTurns() > 0 || c.loudness.Load() >= minLoudFrames
	switch {
	case c.broken:
		r.Reached = agent.ReachedError
		if c.opted {
			r.Outcome = agent.OutcomeOptedOut
		}
		return r // the agent failed, so the only possible outcome is opted_out
	case c.reached != "":
		r.Reached = c.reached
	case personHeard:
		r.Reached = agent.ReachedHuman
	default:
		r.Reached = agent.ReachedAbandoned
	}
	switch {
	case c.opted:
		r.Outcome = agent.OutcomeOptedOut
	case c.transferred:
		r.Outcome = agent.OutcomeTransferred
	case c.callback != nil:
		r.Outcome = agent.OutcomeCallbackRequested
	case c.outcome != "":
		r.Outcome = c.outcome
	case !personHeard || r.Reached == agent.ReachedVoicemail || r.Reached == agent.ReachedFax:
		r.Outcome = agent.OutcomeNoConversation
	default:
		r.Outcome = agent.OutcomeUnknown
	}
	return r
}
