package conversation

import (
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

// noticeMark is the prefix of the id of a mark. The id of the notice's item follows the prefix. The
// mark is queued behind that item. When playback reaches the mark, the whole notice was sent.
const noticeMark = "\x00noticed"

// notice is the state of the recording notice.
type notice struct {
	item     string // last item of the notice
	heard    bool
	objected bool
}

// noticed queues the mark behind the notice. If the notice was cut, the call is not recorded.
func (c *Conversation) noticed(item string) {
	if c.settings.Noticed == nil || c.notice.heard || c.cuts[item] {
		return
	}
	c.notice.item = item
	c.mu.Lock()
	c.queue.mark(noticeMark + item)
	c.mu.Unlock()
	c.update()
}

// unnotice handles a notice that was interrupted before its end.
func (c *Conversation) unnotice(one cut) {
	if one.id == c.notice.item && one.played < one.total {
		c.notice.item = noticeMark // no item has this id
	}
}

// recordable handles the end of the notice, when playback has reached the notice's mark.
func (c *Conversation) recordable(item string) {
	if c.notice.item != item || c.notice.heard || c.notice.objected {
		return
	}
	c.notice.heard = true
	c.settings.Noticed()
}

// object handles the person's wish not to be recorded.
func (c *Conversation) object() {
	if c.notice.objected || c.settings.Objected == nil {
		return
	}
	c.notice.objected = true
	c.Record(nil)
	c.settings.Objected()
}

// addUtterance adds words to the transcript. If the words of the person are a plain objection or
// refusal, addUtterance ends the recording or opts the person out. This also works if the agent
// calls no tool.
func (c *Conversation) addUtterance(e agent.Event, now time.Time) {
	c.transcript.say(e.Role, e.Item, e.Text, now)
	if e.Role != agent.RolePerson {
		return
	}
	if agent.ObjectsToRecording(e.Text) {
		c.object()
	}
	if agent.RefusesFurtherCalls(e.Text) || !c.quoteLimit.IsZero() {
		c.optOut(e.Text)
	}
}
