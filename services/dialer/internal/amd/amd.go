// Package amd (answering machine detection) estimates from audio who answered a call. It detects
// whether a person or a machine speaks, and whether a tone is a machine's beep or a fax tone. The
// input is frames of 20 ms in mu-law; the package reads no clock.
//
// The results are only hints. A caller must not hang up only because of them, because a person can
// have answered. The thresholds are those of Asterisk's AMD. They were tested with synthesised
// speech.
package amd

import "time"

// frameTime is the length of a frame. frameSamples is the number of its samples, one byte each.
const (
	frameTime    = 20 * time.Millisecond
	frameSamples = 160
)

// Signal is what the detector found in a frame. Several signals are combined by OR.
type Signal int32

// Each sound is reported in one frame only. Machine means that the speech resembles a machine's
// greeting. Beep means that a machine starts to record. Fax means that a fax machine answered.
const (
	Nothing Signal = 0
	Machine Signal = 1
	Beep    Signal = 2
	Fax     Signal = 4
)

// Detector analyses the start of a call. It is not safe for concurrent use.
type Detector struct {
	greeting Greeting
	tones    Tones
	judged   bool
}

// Hear analyses the next frame of the far end's audio.
func (d *Detector) Hear(frame []byte) (signal Signal) {
	tone, ok := d.tones.Hear(frame)
	switch {
	case ok && tone.Beep():
		signal |= Beep
	case ok && tone.Fax():
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
