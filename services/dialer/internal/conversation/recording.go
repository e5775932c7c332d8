package conversation

import (
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

// noticeMark is the prefix of the mark that is queued after the recording notice. The rest of the
// mark's id is the id of the notice's last item. When playback reaches the mark, the whole
// recording notice was sent.
const noticeMark = "\x00noticed"

type notice struct {
	item     string // last item of the notice
	heard    bool
	objected bool
}

// queueNoticeMark queues the mark after the notice. If the notice was interrupted, it queues no
// mark, and the recording does not start.
func (c *Conversation) queueNoticeMark(item string) {
	if c.settings.Noticed == nil || c.notice.heard || c.droppedItems[item] {
		return
	}
	c.notice.item = item
	c.mu.Lock()
	c.queue.addMark(noticeMark + item)
	c.mu.Unlock()
	c.update()
}

// cancelNotice prevents the recording if the discarded item belongs to the notice and was not
// played completely.
func (c *Conversation) cancelNotice(discarded cut) {
	if discarded.id == c.notice.item && discarded.played < discarded.total {
		c.notice.item = noticeMark // no item has this id
	}
}

// onNoticePlayed starts the recording. It is called when playback reaches the mark after the
// notice.
func (c *Conversation) onNoticePlayed(item string) {
	if c.notice.item != item || c.notice.heard || c.notice.objected {
		return
	}
	c.notice.heard = true
	c.settings.Noticed()
}

// stopRecording ends the recording, because the person objects to it.
func (c *Conversation) stopRecording() {
	if c.notice.objected || c.settings.Objected == nil {
		return
	}
	c.notice.objected = true
	c.Record(nil)
	c.settings.Objected()
}

// addUtterance adds the words to the transcript. It ends the recording if the person plainly
// objects to it, and opts the person out if the person plainly refuses further calls. It does so
// even if the agent calls no tool.
func (c *Conversation) addUtterance(e agent.Event, now time.Time) {
	c.transcript.addText(e.Role, e.Item, e.Text, now)
	if e.Role != agent.RolePerson {
		return
	}
	delete(c.untranscribedItems, e.Item)
	if agent.ObjectsToRecording(e.Text) {
		c.stopRecording()
	}
	if agent.RefusesFurtherCalls(e.Text) || !c.quoteLimit.IsZero() {
		c.optOut(e.Text)
	}
}
