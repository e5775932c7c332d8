package amd

import (
	"math"
	"time"

	"ringfence.dev/services/dialer/internal/media"
)

const (
	// binWidth is the frequency resolution of a frame of 20 ms, in Hz.
	binWidth = 50
	// lowestBin and highestBin are the bounds of the analysed frequencies. Beeps have frequencies from
	// 400 to 2,500 Hz.
	lowestBin, highestBin = 400 / binWidth, 2500 / binWidth
	bins                  = highestBin - lowestBin + 1
	// minToneShare is the minimum share of a tone in the energy of a frame. The strongest tone of a
	// vowel has a smaller share, because a vowel's energy is spread over its harmonics.
	minToneShare = 0.8
	// minToneLength and maxBeepLength are the minimum and the maximum length of a beep. A longer tone
	// is a dial tone, a hold tone or a fax tone.
	minToneLength = 160 * time.Millisecond
	maxBeepLength = 1500 * time.Millisecond
	// minToneLoudness is the minimum mean square of the samples of a tone, 35 dB below full scale.
	minToneLoudness = 400 * 400
)

// coefficients contains the coefficients of Goertzel's algorithm, 2·cos(2πk/N).
var coefficients = func() (c [bins]float64) {
	for i := range c {
		c[i] = 2 * math.Cos(2*math.Pi*float64(lowestBin+i)/frameSamples)
	}
	return c
}()

// Tone is a tone of one frequency.
type Tone struct {
	Hertz int // accurate to 50 Hz
	For   time.Duration
	// Ended is true if silence or another sound followed the tone.
	Ended bool
}

// Beep reports whether the tone is a beep, after which a machine records. A tone that is too long
// for a beep is reported before it ends, so its Ended is false.
func (t Tone) Beep() bool { return t.Ended }

// Fax reports whether the tone is the answer tone of a fax machine: 2,100 Hz for 2.6 s or more
// (ITU-T T.30). Such a tone is too long for a beep.
func (t Tone) Fax() bool { return !t.Ended && t.Hertz >= 2050 && t.Hertz <= 2150 }

// Tones detects steady tones. The zero value is ready to use.
type Tones struct {
	bin      int
	frames   int
	gap      int
	reported bool
}

// Sounds reports whether the last frame was part of a tone.
func (t *Tones) Sounds() bool { return t.frames > 0 && t.gap == 0 }

// Hear analyses the next frame. It reports each tone once: when the tone ends, or when it becomes
// too long for a beep.
func (t *Tones) Hear(frame []byte) (tone Tone, ok bool) {
	bin, is := strongest(frame)
	if is && t.frames > 0 && max(bin-t.bin, t.bin-bin) <= 1 {
		t.frames += t.gap + 1
		t.gap = 0
		tone = t.tone(false)
		if ok = !t.reported && tone.For > maxBeepLength; ok {
			t.reported = true
		}
		return tone, ok
	}
	if t.frames > 0 && !is && t.gap == 0 { // a single frame without the tone can be a lost packet
		t.gap = 1
		return tone, false
	}
	tone = t.tone(true)
	ok = !t.reported && tone.For >= minToneLength
	*t = Tones{}
	if is {
		t.bin, t.frames = bin, 1
	}
	return tone, ok
}

func (t *Tones) tone(ended bool) Tone {
	return Tone{Hertz: (lowestBin + t.bin) * binWidth, For: time.Duration(t.frames) * frameTime, Ended: ended}
}

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
	if energy < minToneLoudness*frameSamples {
		return 0, false
	}
	// A sine wave at the frequency of the bin has the power energy·N/2.
	bin, power := strongestBin(&samples)
	return bin, power >= minToneShare*energy*frameSamples/2
}

// searchRadius is the number of bins on each side of the estimated frequency that are also
// analysed. Noise makes the estimate inaccurate.
const searchRadius = 3

// strongestBin returns the strongest bin near the estimated frequency, and the power of that bin
// and its two neighbours.
func strongestBin(samples *[frameSamples]float64) (bin int, sum float64) {
	// In a sine wave, each sample equals c times the previous sample minus the sample before the
	// previous one, with c = 2·cos ω. The code estimates c by least squares. The estimate costs as
	// much as the analysis of one bin.
	var up, down float64
	for i := 2; i < frameSamples; i++ {
		up += samples[i-1] * (samples[i] + samples[i-2])
		down += samples[i-1] * samples[i-1]
	}
	if down == 0 {
		return 0, 0
	}
	guess := math.Acos(min(max(up/down/2, -1), 1)) / (2 * math.Pi) * frameSamples
	first := min(max(int(guess+0.5)-searchRadius-lowestBin, 0), bins-1)
	last := min(first+2*searchRadius, bins-1)
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
