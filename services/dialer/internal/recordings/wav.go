// Package wav knows the file of a recording: RIFF WAVE, mu-law (format tag 7), two channels of 8 kHz, the person left and the agent right. It reads and writes nothing itself.

package recordings

import "encoding/binary"

const (
	// HeaderBytes is how long the header is: RIFF, fmt of 18 bytes, fact, data. The sound follows.
	HeaderBytes = 58
	// Rate is samples a second of each channel; BytesPerSecond of both.
	Rate, BytesPerSecond = 8000, 16000

	mulaw, channels = 7, 2
	// mostBytes is what the sizes in the header can say.
	mostBytes = 1<<32 - 1 - HeaderBytes
)

// Header is that of a file with so many bytes of sound.
func Header(sound int64) []byte {
	sound = min(max(sound-sound%channels, 0), mostBytes)
	h := make([]byte, 0, HeaderBytes)
	h = append(h, "RIFF"...)
	h = binary.LittleEndian.AppendUint32(h, uint32(sound+HeaderBytes-8))
	h = append(h, "WAVEfmt "...)
	h = binary.LittleEndian.AppendUint32(h, 18)
	h = binary.LittleEndian.AppendUint16(h, mulaw)
	h = binary.LittleEndian.AppendUint16(h, channels)
	h = binary.LittleEndian.AppendUint32(h, Rate)
	h = binary.LittleEndian.AppendUint32(h, BytesPerSecond)
	h = binary.LittleEndian.AppendUint16(h, channels) // bytes of a sample of both
	h = binary.LittleEndian.AppendUint16(h, 8)        // bits of a sample
	h = binary.LittleEndian.AppendUint16(h, 0)        // no extension
	h = append(h, "fact"...)
	h = binary.LittleEndian.AppendUint32(h, 4)
	h = binary.LittleEndian.AppendUint32(h, uint32(sound/channels))
	h = append(h, "data"...)
	return binary.LittleEndian.AppendUint32(h, uint32(sound))
}

// Append adds samples of both channels, which are equally many.
func Append(sound, left, right []byte) []byte {
	for i := range left {
		sound = append(sound, left[i], right[i])
	}
	return sound
}
