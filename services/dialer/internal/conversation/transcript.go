package conversation

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"ringfence.dev/services/dialer/internal/agent"
)

const (
	// Text beyond one of these limits is dropped.
	maxTextBytes, maxTurnBytes, maxTurns = 256 << 10, 32 << 10, 4096
	// maxItems is the maximum number of items whose played audio is counted.
	maxItems = 2048
	// fastSpeechRate is a high rate of speech, in characters per second. It is used to estimate the
	// shortest possible audio of a text.
	fastSpeechRate = 20
)

// transcript stores who spoke which words and when. A turn of the agent contains only words that
// were sent to the person. The text of an item can arrive before or after its audio.
type transcript struct {
	entries []words
	items   map[string]*item
	size    int
	full    bool
}

type words struct {
	turn agent.Turn
	item string
}

// item contains how much audio of one item of the agent was played. For an utterance of the person,
// it contains only the start time.
type item struct {
	// began and ended are the times of the first and the last frame that was sent.
	began, ended time.Time
	// played and arrived are numbers of bytes of audio.
	played, arrived int
	// complete is true if the agent has sent all audio of the item. disclosure is true if the item
	// belongs to the disclosure.
	complete, disclosure bool
}

func newTranscript() transcript { return transcript{items: map[string]*item{}} }

// item returns the item with the id. If the id is empty, or if maxItems items are stored, a new
// item is returned but not stored.
func (tr *transcript) item(id string) *item {
	it := tr.items[id]
	if it == nil {
		it = &item{}
		if id != "" && len(tr.items) < maxItems {
			tr.items[id] = it
		}
	}
	return it
}

// beginItem stores the time at which an item began. A later call for the same item has no effect.
func (tr *transcript) beginItem(id string, at time.Time) {
	if it := tr.item(id); it.began.IsZero() {
		it.began = at
	}
}

// addPlayed adds the played bytes of a piece to its item. An item can have several pieces.
func (tr *transcript) addPlayed(p *piece) {
	if p.played == p.recorded {
		return
	}
	it := tr.item(p.id)
	if it.began.IsZero() {
		it.began = p.began
	}
	it.ended, it.played = p.last, it.played+p.played-p.recorded
	p.recorded = p.played
}

// subtractUnsent subtracts the share of a frame that was not sent. It must be called after
// addPlayed has added this share.
func (tr *transcript) subtractUnsent(unsent share) {
	it := tr.item(unsent.piece.id)
	it.played -= unsent.bytes
	if it.ended.Equal(unsent.at) {
		it.ended = unsent.previousLast
	}
	if it.began.Equal(unsent.at) {
		it.began = time.Time{}
	}
}

// addText adds a text that arrived at the time now. If its item has a start time, sortedTurns uses
// that time instead.
func (tr *transcript) addText(role, item, text string, now time.Time) {
	if text = strings.TrimSpace(text); text == "" || tr.full {
		return
	}
	text = strings.ToValidUTF8(text[:min(len(text), maxTurnBytes)], "")
	tr.size += len(text)
	// The turn that exceeds the limit is still stored. So the transcript is longer than
	// agent.Transcript permits, and agent.Transcript marks it as truncated.
	tr.full = tr.size > maxTextBytes || len(tr.entries) == maxTurns
	tr.entries = append(tr.entries, words{agent.Turn{Role: role, Text: text, At: now}, item})
}

// personTurns returns the number of the person's turns.
func (tr *transcript) personTurns() (turns int) {
	for _, w := range tr.entries {
		if w.turn.Role == agent.RolePerson {
			turns++
		}
	}
	return turns
}

func (tr *transcript) endsWithPerson() bool {
	return len(tr.entries) > 0 && tr.entries[len(tr.entries)-1].turn.Role == agent.RolePerson
}

func (tr *transcript) lastHeard() string {
	for _, w := range slices.Backward(tr.entries) {
		if w.turn.Role == agent.RolePerson {
			return w.turn.Text
		}
	}
	return ""
}

// sortedTurns returns the turns of the conversation, sorted by time. If only a part of an item's
// audio was sent, its text is shortened in proportion, because agents do not report when they speak
// each word. Text without an item is not shortened.
func (tr *transcript) sortedTurns() []agent.Turn {
	turns := make([]agent.Turn, 0, len(tr.entries))
	for _, w := range tr.entries {
		it, known := tr.items[w.item]
		if known && !it.began.IsZero() {
			w.turn.At = it.began
		}
		if w.turn.Role == agent.RoleAgent && w.item != "" && (known || len(tr.items) < maxItems) {
			w.turn.EndedAt = tr.item(w.item).ended
			w.turn.Text = shortenText(w.turn.Text, tr.item(w.item).sentFraction(w.turn.Text))
		}
		if w.turn.Text != "" {
			turns = append(turns, w.turn)
		}
	}
	slices.SortStableFunc(turns, func(a, b agent.Turn) int { return a.At.Compare(b.At) })
	return turns
}

// sentFraction returns which fraction of the item's text was sent, from 0 to 1. If not all of its
// audio has arrived, the total length of the audio is estimated from the text.
func (it *item) sentFraction(text string) float64 {
	whole := it.arrived
	if !it.complete {
		whole = max(whole, utf8.RuneCountInString(text)*agent.BytesPerSecond/fastSpeechRate)
	}
	if it.played >= whole {
		return min(1, float64(it.played))
	}
	return float64(it.played) / float64(whole)
}

// shortenText returns approximately the given fraction of a text. It cuts between two words and
// marks the cut with a dash.
func shortenText(text string, fraction float64) string {
	if fraction >= 1 {
		return text
	}
	whole, budget := strings.Fields(text), int(fraction*float64(len(text)))
	kept := 0
	for n := -1; kept < len(whole); kept++ {
		if n += len(whole[kept]) + 1; n > budget {
			break
		}
	}
	switch kept {
	case 0:
		return ""
	case len(whole):
		return text
	}
	return strings.Join(whole[:kept], " ") + " –"
}
