package amd

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/media"
)

type sound struct {
	samples []float64
	random  *rand.Rand
}

func newSound() *sound { return &sound{random: rand.New(rand.NewPCG(3, 4))} }

func (s *sound) piece(ms int, sample func(t float64) float64) *sound {
	for i := range ms * 8 {
		s.samples = append(s.samples, sample(float64(i)/8000))
	}
	return s
}

func (s *sound) silence(ms int) *sound { return s.noise(ms, 10) }

func (s *sound) noise(ms int, level float64) *sound {
	return s.piece(ms, func(float64) float64 { return level * s.random.NormFloat64() })
}

func (s *sound) tone(ms int, hertz, level float64) *sound {
	return s.piece(ms, func(t float64) float64 { return level * math.Sin(2*math.Pi*hertz*t) })
}

// speech appends words of 300 ms with pauses of 80 ms. The sound imitates vowels: its pitch
// changes, and two formants, which differ from vowel to vowel, shape the harmonics.
func (s *sound) speech(ms int, pitch float64) *sound {
	phase, last := 0.0, -1.0
	var weights []float64
	return s.piece(ms, func(t float64) float64 {
		in := math.Mod(t, 0.38)
		if in > 0.3 {
			return 10 * s.random.NormFloat64()
		}
		if vowel := math.Floor(t / 0.38); vowel != last {
			last, weights = vowel, nil
			for f := pitch; f < 3600; f += pitch {
				near := func(formant, width float64) float64 { off := (f - formant) / width; return math.Exp(-off * off) }
				weights = append(
					weights,
					near(350+150*math.Mod(vowel, 4), 150)+0.6*near(900+300*math.Mod(vowel, 5), 250)+0.15*pitch/f,
				)
			}
		}
		phase += 2 * math.Pi * pitch * (1 + 0.08*math.Sin(2*math.Pi*3.1*t)) / 8000
		sum := 0.0
		for n, weight := range weights {
			sum += weight * math.Sin(float64(n+1)*phase)
		}
		return 5000*math.Sin(math.Pi*in/0.3)*sum + 20*s.random.NormFloat64()
	})
}

func (s *sound) frames(hear func(frame []byte, at time.Duration)) {
	frame := make([]byte, frameSamples)
	for at := 0; at+frameSamples <= len(s.samples); at += frameSamples {
		for i := range frame {
			frame[i] = media.FromLinear(int16(max(min(s.samples[at+i], 32000), -32000)))
		}
		hear(frame, time.Duration(at/8)*time.Millisecond)
	}
}

func TestGreeting_LengthDistinguishesPersonsFromRecordings(t *testing.T) {
	for _, row := range []struct {
		name   string
		sound  *sound
		want   Verdict
		before time.Duration
	}{
		{"short greeting", newSound().silence(600).speech(600, 180).silence(3000), Person, 2100 * time.Millisecond},
		{
			"greeting with name and company", newSound().silence(400).speech(2200, 120).silence(3000), Person,
			3500 * time.Millisecond,
		},
		{
			"greeting of a machine", newSound().silence(500).speech(4000, 110).silence(3000), Recording,
			4500 * time.Millisecond,
		},
		{"silence", newSound().silence(6000), Unsure, 2600 * time.Millisecond},
		{
			"clicks", newSound().silence(500).tone(40, 300, 8000).silence(500).tone(60, 200, 8000).silence(5000), Unsure,
			5100 * time.Millisecond,
		},
		{
			"many short words with long pauses",
			newSound().speech(300, 150).silence(600).speech(300, 150).silence(600).speech(300, 150).silence(600).
				speech(300, 150).silence(600).speech(300, 150).silence(600).speech(300, 150).silence(600).silence(1000),
			Unsure, 5100 * time.Millisecond,
		},
		{
			"short greeting on a noisy line",
			newSound().noise(800, 500).piece(600, mix(newSound().speech(600, 180), 500)).noise(3000, 500), Person,
			2600 * time.Millisecond,
		},
		{"line that becomes noisy", newSound().silence(1000).noise(8000, 600), Person, 3000 * time.Millisecond},
		{"tone", newSound().silence(300).tone(4000, 440, 8000).silence(2000), Unsure, 5100 * time.Millisecond},
	} {
		var g Greeting
		var tones Tones
		var got Verdict
		var when time.Duration
		row.sound.frames(func(frame []byte, at time.Duration) {
			tones.Hear(frame)
			if v := g.Hear(frame, tones.Sounds()); v != Undecided && got == Undecided {
				got, when = v, at
			}
		})
		if got != row.want {
			t.Errorf("%s: got = %v, want %v", row.name, got, row.want)
		} else if when > row.before {
			t.Errorf("%s: when = %v, want at most %v", row.name, when, row.before)
		}
	}
}

func mix(over *sound, noise float64) func(float64) float64 {
	return func(t float64) float64 {
		return over.samples[min(int(math.Round(t*8000)), len(over.samples)-1)] + noise*over.random.NormFloat64()
	}
}

func TestTones_BeepsAndFaxTonesAreDetected(t *testing.T) {
	for _, row := range []struct {
		name     string
		sound    *sound
		beep     bool
		fax      bool
		earliest time.Duration
	}{
		{
			"beep", newSound().speech(2000, 120).silence(300).tone(400, 1000, 6000).silence(1000), true, false,
			2700 * time.Millisecond,
		},
		{
			"short beep between two bins", newSound().silence(110).tone(200, 1425, 3000).silence(1000), true, false,
			280 * time.Millisecond,
		},
		{"low beep", newSound().silence(100).tone(500, 440, 6000).silence(500), true, false, 0},
		{
			"high beep with noise",
			newSound().noise(100, 200).piece(500, mix(newSound().tone(500, 2130, 6000), 200)).noise(500, 200), true, false,
			0,
		},
		{"tone too short for a beep", newSound().silence(100).tone(120, 1000, 6000).silence(1000), false, false, 0},
		{"tone too quiet for a beep", newSound().silence(100).tone(400, 1000, 300).silence(1000), false, false, 0},
		{"dial tone: too long for a beep", newSound().silence(100).tone(4000, 425, 6000).silence(1000), false, false, 0},
		{"fax tone", newSound().silence(1000).tone(3000, 2100, 8000).silence(1000), false, true, 2400 * time.Millisecond},
		{"DTMF digit: two tones", newSound().silence(100).piece(400, func(t float64) float64 {
			return 5000*math.Sin(2*math.Pi*697*t) + 5000*math.Sin(2*math.Pi*1209*t)
		}).silence(1000), false, false, 0},
		{
			"tone with a rising frequency",
			newSound().silence(100).piece(800, func(t float64) float64 {
				return 6000 * math.Sin(2*math.Pi*(600*t+1500*t*t))
			}).silence(500),
			false, false, 0,
		},
		{"low voice", newSound().speech(5000, 105), false, false, 0},
		{"high voice", newSound().speech(5000, 230), false, false, 0},
		{"noise", newSound().noise(5000, 3000), false, false, 0},
	} {
		var d Detector
		var beeps, faxes int
		var when time.Duration
		row.sound.frames(func(frame []byte, at time.Duration) {
			switch signal := d.Hear(frame); {
			case signal&Beep != 0:
				beeps, when = beeps+1, at
			case signal&Fax != 0:
				faxes, when = faxes+1, at
			}
		})
		switch {
		case (beeps == 1) != row.beep:
			t.Errorf("%s: one beep = %v, want %v", row.name, (beeps == 1), row.beep)
		case (faxes == 1) != row.fax:
			t.Errorf("%s: one fax tone = %v, want %v", row.name, (faxes == 1), row.fax)
		case beeps+faxes > 1:
			t.Errorf("%s: beeps + faxes = %v, want at most 1", row.name, beeps+faxes)
		case when < row.earliest:
			t.Errorf("%s: when = %v, want at least %v", row.name, when, row.earliest)
		}
	}
}

func TestTones_BeepContinuesAfterALostFrame(t *testing.T) {
	var tones Tones
	var reported []Tone
	frames := 0
	newSound().silence(100).tone(400, 1000, 6000).silence(200).frames(func(frame []byte, _ time.Duration) {
		if frames++; frames == 15 {
			for i := range frame {
				frame[i] = media.Silence
			}
		}
		if tone, ok := tones.Hear(frame); ok {
			reported = append(reported, tone)
		}
	})
	switch {
	case len(reported) != 1:
		t.Errorf("tones = %d, want 1", len(reported))
	case reported[0].Hertz != 1000:
		t.Errorf("tone: Hertz = %v, want 1000", reported[0].Hertz)
	case reported[0].For != 400*time.Millisecond:
		t.Errorf("tone: For = %v, want %v", reported[0].For, 400*time.Millisecond)
	case !reported[0].Ended:
		t.Error("tone: Ended = false, want true")
	}
}

func TestDetector_ReportsAMachineOnce(t *testing.T) {
	var d Detector
	machines, beeps := 0, 0
	newSound().silence(
		300,
	).speech(
		4000,
		120,
	).silence(
		300,
	).tone(
		500,
		1400,
		6000,
	).silence(
		2000,
	).speech(
		3000,
		120,
	).frames(
		func(frame []byte, _ time.Duration) {
			signal := d.Hear(frame)
			machines += int(signal & Machine)
			beeps += int(signal&Beep) / int(Beep)
		},
	)
	if machines != 1 {
		t.Errorf("machines = %v, want 1", machines)
	} else if beeps != 1 {
		t.Errorf("beeps = %v, want 1", beeps)
	}
}

func TestDetector_AllocatesNothing(t *testing.T) {
	var d Detector
	frame := make([]byte, frameSamples)
	if n := testing.AllocsPerRun(1000, func() { d.Hear(frame) }); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func BenchmarkDetector(b *testing.B) {
	var d Detector
	frame := make([]byte, frameSamples)
	newSound().speech(20, 120).frames(func(f []byte, _ time.Duration) { copy(frame, f) })
	for b.Loop() {
		d.Hear(frame)
	}
}

func FuzzDetector(f *testing.F) {
	newSound().speech(20, 120).tone(20, 1000, 6000).frames(func(frame []byte, _ time.Duration) { f.Add(frame) })
	f.Fuzz(func(t *testing.T, frame []byte) {
		var d Detector
		signals := Nothing
		for range 400 {
			signals += d.Hear(frame)
		}
		if signals > Machine+Fax {
			t.Errorf("%d of one frame again and again", signals)
		}
	})
}
