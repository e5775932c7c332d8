// Package g711 knows the two laws of ITU-T G.711: what a byte of either means as a 16-bit sample, the nearest byte of a sample, and the
// byte of the one law that is nearest to a byte of the other. Tables are made from the definition when the program starts and never change.

package media

import "math/bits"

// Silence is a positive zero, µ-law.
const Silence = 0xFF

// SilenceALaw is the smallest positive value; A-law has no zero.
const SilenceALaw = 0xD5

var (
	linear   = tabled(func(b byte) int16 { return muLinear(b) })
	toALaw   = tabled(func(b byte) byte { return aByte(muLinear(b), b&0x80 == 0) })
	fromALaw = tabled(func(b byte) byte { return muByte(aLinear(b)) })
)

func tabled[T any](of func(byte) T) (table [256]T) {
	for i := range table {
		table[i] = of(byte(i))
	}
	return table
}

// Linear is the sample that a µ-law byte stands for, of at most ±32,124.
func Linear(b byte) int16 { return linear[b] }

// FromLinear is the µ-law byte of a sample.
func FromLinear(sample int16) byte { return muByte(sample) }

// ToALaw turns µ-law into A-law, in place.
func ToALaw(audio []byte) {
	for i, b := range audio {
		audio[i] = toALaw[b]
	}
}

// FromALaw turns A-law into µ-law, in place.
func FromALaw(audio []byte) {
	for i, b := range audio {
		audio[i] = fromALaw[b]
	}
}

// LinearALaw is the sample that an A-law byte stands for, of at most ±32,256.
func LinearALaw(b byte) int16 { return aLinear(b) }

// muLinear decodes table 2a of G.711: inverted bits, 3 of the segment, 4 of the step, a bias of 33, on a scale of 14 bits.
func muLinear(b byte) int16 {
	b = ^b
	value := (int(b&0x0F)<<1+33)<<(b>>4&7) - 33
	return signed(value<<2, b&0x80 != 0)
}

// muByte encodes: beyond 8,159 of the 14-bit scale is the last step.
func muByte(sample int16) byte {
	value := min(magnitude(sample)>>2, 8158) + 33
	segment := bits.Len(uint(value)) - 6
	b := byte(segment<<4 | value>>(segment+1)&0x0F)
	if sample < 0 {
		b |= 0x80
	}
	return ^b
}

// aLinear decodes table 1a of G.711: even bits inverted, the sign bit set for positive, on a scale of 13 bits.
func aLinear(b byte) int16 {
	b ^= 0x55
	segment, value := int(b>>4&7), int(b&0x0F)<<1+1
	if segment > 0 {
		value = (value + 32) << (segment - 1)
	}
	return signed(value<<3, b&0x80 == 0)
}

// aByte encodes. negative decides for a zero, of which µ-law has two.
func aByte(sample int16, negative bool) byte {
	value := min(magnitude(sample)>>3, 4095)
	segment := max(bits.Len(uint(value))-5, 0)
	b := byte(segment<<4 | value>>max(segment, 1)&0x0F)
	if !negative && sample >= 0 {
		b |= 0x80
	}
	return b ^ 0x55
}

func magnitude(sample int16) int {
	if sample < 0 {
		return -int(sample)
	}
	return int(sample)
}

func signed(value int, negative bool) int16 {
	if negative {
		value = -value
	}
	return int16(value)
}
