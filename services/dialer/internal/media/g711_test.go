package media

import (
	"testing"
)

// levels returns the positive output values of mu-law or A-law, as in the tables of G.711. The
// distance between values doubles with each segment.
func levels(first, step, segments, doubledFrom int) (all []int) {
	value := first
	for segment := range segments {
		if segment > doubledFrom {
			step *= 2
		}
		for range 16 {
			all = append(all, value)
			value += step
		}
		value += step / 2 // the next segment starts one and a half steps later
		if segment < doubledFrom {
			value -= step / 2
		}
	}
	return all
}

func TestLinear_MatchesTheTablesOfG711(t *testing.T) {
	mu := levels(0, 2, 8, 0)   // table 2a, 14 bits: 0, 2, … 30, 33, 37 …
	alaw := levels(1, 2, 8, 1) // table 1a, 13 bits: 1, 3, … 63, 66, 70 …
	switch {
	case mu[127] != 8031:
		t.Fatalf("mu[127] = %v, want 8031", mu[127])
	case alaw[127] != 4032:
		t.Fatalf("alaw[127] = %v, want 4032", alaw[127])
	case mu[16] != 33:
		t.Fatalf("mu[16] = %v, want 33", mu[16])
	case alaw[32] != 66:
		t.Fatalf("alaw[32] = %v, want 66", alaw[32])
	}
	for i := range 128 {
		if got := int(Linear(byte(0xFF - i))); got != 4*mu[i] {
			t.Errorf("got = %v, want %v", got, 4*mu[i])
		} else if int(Linear(byte(0x7F-i))) != -got {
			t.Errorf("int(Linear(byte(0x7F-i))) = %v, want %v", int(Linear(byte(0x7F-i))), -got)
		}
		b := byte(0x80|i) ^ 0x55
		if got := int(LinearALaw(b)); got != 8*alaw[i] {
			t.Errorf("got = %v, want %v", got, 8*alaw[i])
		} else if int(LinearALaw(b^0x80)) != -got {
			t.Errorf("int(LinearALaw(b^0x80)) = %v, want %v", int(LinearALaw(b^0x80)), -got)
		}
	}
}

// FromLinear returns a level that is at most half a step away from the sample. Where two segments
// meet, the step changes, so this level is not always the nearest level.
func TestFromLinear_RoundingErrorIsAtMostHalfAStep(t *testing.T) {
	for sample := -32635; sample <= 32635; sample++ {
		b := FromLinear(int16(sample))
		if off := abs(int(Linear(b)) - sample); off > 4<<(^b>>4&7) {
			t.Fatalf("%d becomes %d, more than half a step away", sample, Linear(b))
		}
	}
	if got := Linear(FromLinear(32767)); got != 32124 {
		t.Errorf("value beyond the scale: Linear(FromLinear(32767)) = %v, want 32124", got)
	} else if got := Linear(FromLinear(-32768)); got != -32124 {
		t.Errorf("value beyond the scale: Linear(FromLinear(-32768)) = %v, want -32124", got)
	}
}

func TestToALaw_RoundingErrorIsAtMostHalfAStep(t *testing.T) {
	for i := range 256 {
		b := []byte{byte(i)}
		ToALaw(b)
		from, to := int(Linear(byte(i))), int(LinearALaw(b[0]))
		if segment := int((b[0] ^ 0x55) >> 4 & 7); abs(from-to) > 8<<max(segment-1, 0) {
			t.Errorf("µ-law %#x (%d) becomes A-law %d, more than half a step away", i, from, to)
		}
		if from != 0 && from < 0 != (to < 0) {
			t.Errorf("µ-law %#x changes its sign", i)
		}
		b[0] = byte(i)
		FromALaw(b)
		from, to = int(LinearALaw(byte(i))), int(Linear(b[0]))
		if segment := int(^b[0] >> 4 & 7); abs(from-to) > 4<<segment && abs(from) <= 32635 {
			t.Errorf("A-law %#x (%d) becomes µ-law %d, more than half a step away", i, from, to)
		}
		if from < 0 != (to < 0) {
			t.Errorf("A-law %#x changes its sign", i)
		}
	}
	silence := []byte{Silence, 0x7F}
	ToALaw(silence)
	if silence[0] != SilenceALaw {
		t.Errorf("silence[0] = %v, want %v", silence[0], SilenceALaw)
	} else if silence[1] != SilenceALaw^0x80 {
		t.Errorf("silence[1] = %v, want %v", silence[1], SilenceALaw^0x80)
	}
}

func abs(n int) int { return max(n, -n) }
