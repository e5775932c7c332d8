package amd

import (
	"math"
	"time"

	"ringfence.dev/services/dialer/internal/media"
)

const (
	// hertz is the distance of the frequencies that a frame of 20 ms tells apart.
	hertz = 50
	// lowest and highest are those looked at, in steps of hertz: beeps have 400 to 2,500.
	lowest, highest = 400 / hertz, 2500 / hertz
	bins            = highest - lowest + 1
	// dominant is the share of a frame's energy that a tone has, its neighbours' leakage included. A vowel spreads over its harmonics.
	dominant = 0.8
	// shortestTone is the shortest beep, longestBeep the longest: what goes on is a dial tone, a hold tone or a fax.
	shortestTone = 160 * time.Millisecond
	longestBeep  = 1500 * time.Millisecond
	// loudTone is the mean square of the quietest tone, -35 dB of the loudest.
	loudTone = 400 * 400
)

// coefficients are those of Goertzel's algorithm, 2·cos(2πk/N).
var coefficients = func() (c [bins]float64) {
	for i := range c {
		c[i] = 2 * math.Cos(2*math.Pi*float64(lowest+i)/frameSamples)
	}
	return c
}()

// Tone is one frequency that was heard for a while.
type Tone struct {
	Hertz int // exact to 50
	For   time.Duration
	// Ended: silence or something else came after it.
	Ended bool
}

// Beep says whether it is one after which a machine listens: what is too long for that is told before it ends.
func (t Tone) Beep() bool { return t.Ended }

// Fax says whether it is the answer of a fax (2,100 Hz for 2.6 s and more, ITU-T T.30), heard long enough to be no beep.
func (t Tone) Fax() bool { return !t.Ended && t.Hertz >= 2050 && t.Hertz <= 2150 }

// Tones tells steady tones from everything else. The zero Tones is ready.
type Tones struct {
	bin    int
	frames int
	gap    int
	told   bool
}

// Sounds says whether the last frame was a tone's.
func (t *Tones) Sounds() bool { return t.frames > 0 && t.gap == 0 }

// Hear takes the next frame, and tells a tone once: at its end, or when it has become too long to be a beep.
func (t *Tones) Hear(frame []byte) (tone Tone, told bool) {
	bin, is := strongest(frame)
	if is && t.frames > 0 && max(bin-t.bin, t.bin-bin) <= 1 {
		t.frames += t.gap + 1
		t.gap = 0
		tone = t.tone(false)
		if told = !t.told && tone.For > longestBeep; told {
			t.told = true
		}
		return tone, told
	}
	if t.frames > 0 && !is && t.gap == 0 { // one bad frame is a lost packet, not an end
		t.gap = 1
		return tone, false
	}
	tone = t.tone(true)
	told = !t.told && tone.For >= shortestTone
	*t = Tones{}
	if is {
		t.bin, t.frames = bin, 1
	}
	return tone, told
}

func (t *Tones) tone(ended bool) Tone {
	return Tone{Hertz: (lowest + t.bin) * hertz, For: time.Duration(t.frames) * frameTime, Ended: ended}
}

// strongest is the one frequency that a frame consists of, if it does.
func strongest(frame []byte) (bin int, is bool) {
	if len(frame) != frameSamples {
		return 0, false
	}
	var samples [frameSamples]float64
	energy := 0.0
	for i, b := range frame {
		samples[i] = float64(media.Linear(b))
		energy += samples[i] * samples[i]
	}
	if energy < loudTone*frameSamples {
		return 0, false
	}
	// A sine of the bin's own frequency has power energy·N/2.
	bin, power := loudest(&samples)
	return bin, power >= dominant*energy*frameSamples/2
}

// around is how many bins on both sides of the guess are looked at: noise draws the guess away.
const around = 3

// loudest is the strongest bin about the frequency that a sine would have to have, and its power with that of its neighbours.
func loudest(samples *[frameSamples]float64) (bin int, sum float64) {
	// Of a sine, each sample is c times the one before less the one before that; c = 2·cos ω is guessed by least squares. It costs as much as one
	// bin and spares the others.
	var up, down float64
	for i := 2; i < frameSamples; i++ {
		up += samples[i-1] * (samples[i] + samples[i-2])
		down += samples[i-1] * samples[i-1]
	}
	if down == 0 {
		return 0, 0
	}
	guess := math.Acos(min(max(up/down/2, -1), 1)) / (2 * math.Pi) * frameSamples
	first := min(max(int(guess+0.5)-around-lowest, 0), bins-1)
	last := min(first+2*around, bins-1)
	var power [bins]float64
	for i := first; i <= last; i++ {
		c := coefficients[i]
		before, now := 0.0, 0.0
		for _, sample := range samples {
			before, now = now, sample+c*now-before
		}
		power[i] = before*before + now*now - c*before*now
		if power[i] > power[bin] {
			bin = i
		}
	}
	sum = power[bin]
	if bin > 0 {
		sum += power[bin-1]
	}
	if bin < bins-1 {
		sum += power[bin+1]
	}
	return bin, sum
}
