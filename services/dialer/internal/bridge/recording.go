package bridge

import (
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

// noticeMark and the notice's item are the item that stands in the queue behind it: once that has been played, so has the notice.
const noticeMark = "\x00noticed"

// notice is what the person knows of being recorded, and wants.
type notice struct {
	item     string // the last of the notice
	heard    bool
	objected bool
}

// noticed sets the mark behind what the agent has said. Of a notice that was cut off nothing comes.
func (c *Conversation) noticed(item string) {
	if c.settings.Noticed == nil || c.notice.heard || c.cuts[item] {
		return
	}
	c.notice.item = item
	c.mu.Lock()
	c.queue.mark(noticeMark + item)
	c.mu.Unlock()
	c.look()
}

// unnotice takes that the notice was cut off before its end.
func (c *Conversation) unnotice(one cut) {
	if one.id == c.notice.item && one.played < one.total {
		c.notice.item = noticeMark // no item's
	}
}

// recordable takes that the mark of an item was played.
func (c *Conversation) recordable(item string) {
	if c.notice.item != item || c.notice.heard || c.notice.objected {
		return
	}
	c.notice.heard = true
	c.settings.Noticed()
}

// object takes that the person does not want to be recorded, now or later.
func (c *Conversation) object() {
	if c.notice.objected || c.settings.Objected == nil {
		return
	}
	c.notice.objected = true
	c.Record(nil)
	c.settings.Objected()
}

// said adds words to the transcript. Plain words of the person end the recording or opt the person out,
// even if the agent calls no tool.
func (c *Conversation) said(e agent.Event, now time.Time) {
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
