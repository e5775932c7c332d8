package amd

import (
	"time"

	"ringfence.dev/services/dialer/internal/media"
)

// Level returns the mean magnitude of a frame, at most 32,124.
func Level(frame []byte) int {
	sum := 0
	for _, b := range frame {
		sample := int(media.Linear(b))
		sum += max(sample, -sample)
	}
	return sum / max(len(frame), 1)
}

const (
	// minVoiceLevel is the minimum level of a voice on a line without noise. It is the threshold of
	// Asterisk's AMD.
	minVoiceLevel = 256
	// minVoiceRatio is the minimum ratio between the level of a voice and the noise of the line.
	minVoiceRatio = 3
	// floorRise limits how fast the measured noise level rises: by 1/64 of its value per frame, so
	// that it doubles in 0.9 s. The level falls again in each pause between words.
	floorRise = 64
)

// Voice detects speech frame by frame. The zero value is ready to use.
type Voice struct {
	noiseLevel int // noise level of the line; multiplied by 64, so that small rises are not rounded to 0
	known      bool
}

// Hear reports whether the frame contains a voice. Any sound that is much louder than the line's
// noise counts as a voice.
func (v *Voice) Hear(frame []byte) bool {
	level := 64 * Level(frame)
	if v.known {
		v.noiseLevel += v.noiseLevel / floorRise
	}
	if !v.known || level < v.noiseLevel {
		v.noiseLevel, v.known = level, true
	}
	v.noiseLevel = max(v.noiseLevel, 64*minVoiceLevel/minVoiceRatio)
	return level >= minVoiceRatio*v.noiseLevel
}

// Verdict classifies a greeting.
type Verdict string

// Undecided means that more frames must be analysed. Unsure means that the length of the greeting
// allows no decision. Person means that the greeting is short and a pause follows. Recording means
// that the greeting is long.
const (
	Undecided Verdict = ""
	Unsure    Verdict = "unsure"
	Person    Verdict = "person"
	Recording Verdict = "recording"
)

// The limits are those of Asterisk's AMD, except longGreeting. Asterisk's value of 1.5 s is too
// short for people who answer with their name and company.
const (
	initialSilence = 2500 * time.Millisecond
	afterGreeting  = 800 * time.Millisecond
	longGreeting   = 2600 * time.Millisecond
	wholeTime      = 5 * time.Second
	// minWordLength is the minimum length of a word. A shorter sound counts as a click.
	minWordLength = 100 * time.Millisecond
)

// Greeting classifies a greeting by its length. The zero value is ready to use.
type Greeting struct {
	voice   Voice
	heard   time.Duration
	spoken  time.Duration // length of the words so far
	word    time.Duration // length of the current word
	silence time.Duration
	verdict Verdict
}

// Hear analyses the next frame. tone must be true if the frame is part of a tone, which is not a
// voice. After the first decision, the verdict no longer changes.
func (g *Greeting) Hear(frame []byte, tone bool) Verdict {
	if g.verdict != Undecided {
		return g.verdict
	}
	g.heard += frameTime
	if g.voice.Hear(frame) && !tone {
		g.word += frameTime
		if g.word >= minWordLength {
			if g.word == minWordLength {
				g.spoken += minWordLength
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
