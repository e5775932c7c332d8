package bridge

import (
	"slices"
	"strings"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

const (
	// maxWords bounds the transcript's text in bytes, maxTurn one turn's, and maxTurns their number; what is said beyond is not kept (contract.md §5 cuts it at a turn).
	maxWords, maxTurn, maxTurns = 256 << 10, 32 << 10, 4096
	// mostItems is how many items are remembered for their time and their cut.
	mostItems = 2048
)

// transcript is who said what and when. Words come before or after the voice they belong to; their time is when that was first heard or played.
type transcript struct {
	said  []words
	began map[string]time.Time
	parts map[string]float64 // of items that were cut: how much was played
	size  int
	full  bool
}

type words struct {
	turn agent.Turn
	item string
}

func newTranscript() transcript {
	return transcript{began: map[string]time.Time{}, parts: map[string]float64{}}
}

// begin notes when an item was first heard; the first time counts.
func (tr *transcript) begin(item string, at time.Time) {
	if _, known := tr.began[item]; !known && item != "" && len(tr.began) < mostItems {
		tr.began[item] = at
	}
}

// say adds words, said at the latest now.
func (tr *transcript) say(role, item, text string, now time.Time) {
	if text = strings.TrimSpace(text); text == "" || tr.full {
		return
	}
	text = strings.ToValidUTF8(text[:min(len(text), maxTurn)], "")
	tr.size += len(text)
	tr.full = tr.size > maxWords || len(tr.said) == maxTurns // the turn that crosses the bound is kept, so that whoever writes it down sees that it was crossed
	tr.said = append(tr.said, words{agent.Turn{Role: role, Text: text, At: now}, item})
}

// cut notes that only a part of an item was played.
func (tr *transcript) cut(item string, part float64) {
	if item != "" && len(tr.parts) < mostItems {
		tr.parts[item] = part
	}
}

// heard says that the person said something.
func (tr *transcript) heard() (turns int) {
	for _, w := range tr.said {
		if w.turn.Role == agent.RolePerson {
			turns++
		}
	}
	return turns
}

// lastHeard returns the last words of the person, or "" if the person said nothing.
func (tr *transcript) lastHeard() string {
	for _, w := range slices.Backward(tr.said) {
		if w.turn.Role == agent.RolePerson {
			return w.turn.Text
		}
	}
	return ""
}

// turns are what was really said, in order of time. Of an item that was cut it is about the part that was played: where the words stand in the sound, nobody tells.
func (tr *transcript) turns() []agent.Turn {
	turns := make([]agent.Turn, 0, len(tr.said))
	for _, w := range tr.said {
		if at, known := tr.began[w.item]; known {
			w.turn.At = at
		}
		if part, cut := tr.parts[w.item]; cut && w.turn.Role == agent.RoleAgent {
			w.turn.Text = shortened(w.turn.Text, part)
		}
		if w.turn.Text != "" {
			turns = append(turns, w.turn)
		}
	}
	slices.SortStableFunc(turns, func(a, b agent.Turn) int { return a.At.Compare(b.At) })
	return turns
}

// shortened is about that part of a text, up to a word, with a dash where it broke off.
func shortened(text string, part float64) string {
	if part >= 1 {
		return text
	}
	whole, budget := strings.Fields(text), int(part*float64(len(text)))
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
