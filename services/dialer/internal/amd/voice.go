package amd

import (
	"time"

	"ringfence.dev/services/dialer/internal/media"
)

// Level is the mean magnitude of a frame, of 32,124.
func Level(frame []byte) int {
	sum := 0
	for _, b := range frame {
		sample := int(media.Linear(b))
		sum += max(sample, -sample)
	}
	return sum / max(len(frame), 1)
}

const (
	// quietest is what counts as a voice on a silent line: the threshold of Asterisk's AMD.
	quietest = 256
	// above is how many times louder than the line's own noise a voice is.
	above = 3
	// floorRise lets the measured noise follow a line that becomes noisier, by a 64th a frame: it doubles in 0.9 s, and falls back in each pause between words.
	floorRise = 64
)

// Voice says frame by frame whether somebody speaks. The zero Voice is ready.
type Voice struct {
	floor int // of the line's noise, 64 times
	known bool
}

// Hear says whether a voice, or anything else that is louder than the line's noise, is in the frame.
func (v *Voice) Hear(frame []byte) bool {
	level := 64 * Level(frame)
	if v.known {
		v.floor += v.floor / floorRise
	}
	if !v.known || level < v.floor {
		v.floor, v.known = level, true
	}
	v.floor = max(v.floor, 64*quietest/above)
	return level >= above*v.floor
}

// Verdict is what a greeting sounds like.
type Verdict string

// Undecided: go on listening. Unsure: it cannot be told by its length. Person: a short greeting, and then somebody waits. Recording: it goes on and on.
const (
	Undecided Verdict = ""
	Unsure    Verdict = "unsure"
	Person    Verdict = "person"
	Recording Verdict = "recording"
)

// Limits of Asterisk's AMD; its 1.5 s of greeting were too short for people who answer with name and company.
const (
	initialSilence = 2500 * time.Millisecond
	afterGreeting  = 800 * time.Millisecond
	longGreeting   = 2600 * time.Millisecond
	wholeTime      = 5 * time.Second
	// shortest is what counts as a word; less is a click.
	shortest = 100 * time.Millisecond
)

// Greeting judges the one who answered by how long the first words are. The zero Greeting is ready.
type Greeting struct {
	voice   Voice
	heard   time.Duration
	spoken  time.Duration // words so far
	word    time.Duration // the one that is going on
	silence time.Duration
	verdict Verdict
}

// Hear takes the next frame; a tone is no voice. The verdict comes once, with a frame, and stays.
func (g *Greeting) Hear(frame []byte, tone bool) Verdict {
	if g.verdict != Undecided {
		return g.verdict
	}
	g.heard += frameTime
	if g.voice.Hear(frame) && !tone {
		g.word += frameTime
		if g.word >= shortest {
			if g.word == shortest {
				g.spoken += shortest
			} else {
				g.spoken += frameTime
			}
			g.silence = 0
		}
	} else {
		g.word = 0
		g.silence += frameTime
	}
	switch {
	case g.spoken >= longGreeting:
		g.verdict = Recording
	case g.spoken > 0 && g.silence >= afterGreeting:
		g.verdict = Person
	case g.spoken == 0 && g.silence >= initialSilence, g.heard >= wholeTime:
		g.verdict = Unsure
	}
	return g.verdict
}
