// Package amd guesses from sound alone who answered a call: whether somebody speaks, whether it goes on as a machine's greeting does, and whether
// a tone is a machine's beep or a fax. Pure functions over frames of 20 ms µ-law; time is counted in frames. Everything here is a hint: thresholds are
// those of Asterisk's AMD, tried on synthesised speech, and no ground to hang up on somebody.
package amd

import "time"

// frameTime is a frame's. frameSamples are its bytes.
const (
	frameTime    = 20 * time.Millisecond
	frameSamples = 160
)

// Signal is what a frame brings to light; several at once are or-ed.
type Signal int32

// Signals, each told once: the one who answered speaks as a machine's greeting does; a machine beeped, and wants a message now; a fax answers.
const (
	Nothing Signal = 0
	Machine Signal = 1
	Beep    Signal = 2
	Fax     Signal = 4
)

// Detector listens to a call's first minute. Not safe for use by several goroutines.
type Detector struct {
	greeting Greeting
	tones    Tones
	judged   bool
}

// Hear takes the next frame of the far end.
func (d *Detector) Hear(frame []byte) (signal Signal) {
	tone, told := d.tones.Hear(frame)
	switch {
	case told && tone.Beep():
		signal |= Beep
	case told && tone.Fax():
		signal |= Fax
	}
	if d.judged {
		return signal
	}
	if verdict := d.greeting.Hear(frame, d.tones.Sounds()); verdict != Undecided {
		d.judged = true
		if verdict == Recording {
			signal |= Machine
		}
	}
	return signal
}
