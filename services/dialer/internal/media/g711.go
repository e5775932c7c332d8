package media

import "math/bits"

// Silence is the mu-law byte of positive zero.
const Silence = 0xFF

// SilenceALaw is the A-law byte of the smallest positive value. A-law has no zero.
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

// Linear returns the 16-bit sample of a mu-law byte (ITU-T G.711), at most ±32,124.
func Linear(b byte) int16 { return linear[b] }

// FromLinear returns the mu-law byte that is nearest to a sample.
func FromLinear(sample int16) byte { return muByte(sample) }

// ToALaw converts mu-law to A-law, in place.
func ToALaw(audio []byte) {
	for i, b := range audio {
		audio[i] = toALaw[b]
	}
}

// FromALaw converts A-law to mu-law, in place.
func FromALaw(audio []byte) {
	for i, b := range audio {
		audio[i] = fromALaw[b]
	}
}

// LinearALaw returns the 16-bit sample of an A-law byte, at most ±32,256.
func LinearALaw(b byte) int16 { return aLinear(b) }

// muLinear decodes a byte as in table 2a of ITU-T G.711. All bits of the byte are inverted. Three
// bits are the segment and four bits are the step. The samples have 14 bits and a bias of 33.
func muLinear(b byte) int16 {
	b = ^b
	value := (int(b&0x0F)<<1+33)<<(b>>4&7) - 33
	return signed(value<<2, b&0x80 != 0)
}

// muByte encodes a sample. Samples from 8,159 on the 14-bit scale are encoded as the last step.
func muByte(sample int16) byte {
	value := min(magnitude(sample)>>2, 8158) + 33
	segment := bits.Len(uint(value)) - 6
	b := byte(segment<<4 | value>>(segment+1)&0x0F)
	if sample < 0 {
		b |= 0x80
	}
	return ^b
}

// aLinear decodes a byte as in table 1a of ITU-T G.711. The even bits of the byte are inverted, and
// the sign bit is set for positive values. The samples have 13 bits.
func aLinear(b byte) int16 {
	b ^= 0x55
	segment, value := int(b>>4&7), int(b&0x0F)<<1+1
	if segment > 0 {
		value = (value + 32) << (segment - 1)
	}
	return signed(value<<3, b&0x80 == 0)
}

// aByte encodes a sample. negative is the sign of a zero sample: mu-law has a positive and a
// negative zero.
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
