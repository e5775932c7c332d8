package recordings

import "encoding/binary"

const (
	// HeaderBytes is the length of the header: RIFF, fmt of 18 bytes, fact and data. The audio
	// follows.
	HeaderBytes = 58
	// Rate is the number of samples per second of each channel. BytesPerSecond is that of both
	// channels.
	Rate, BytesPerSecond = 8000, 16000

	mulaw, channels = 7, 2
	// maxBytes is the largest length that the header can have.
	maxBytes = 1<<32 - 1 - HeaderBytes
)

// Header returns the header of a recording with so many bytes of audio: RIFF WAVE, mu-law (format
// tag 7), two channels of 8 kHz, the person left and the agent right.
func Header(sound int64) []byte {
	sound = min(max(sound-sound%channels, 0), maxBytes)
	h := make([]byte, 0, HeaderBytes)
	h = append(h, "RIFF"...)
	h = binary.LittleEndian.AppendUint32(h, uint32(sound+HeaderBytes-8))
	h = append(h, "WAVEfmt "...)
	h = binary.LittleEndian.AppendUint32(h, 18)
	h = binary.LittleEndian.AppendUint16(h, mulaw)
	h = binary.LittleEndian.AppendUint16(h, channels)
	h = binary.LittleEndian.AppendUint32(h, Rate)
	h = binary.LittleEndian.AppendUint32(h, BytesPerSecond)
	h = binary.LittleEndian.AppendUint16(h, channels) // bytes per sample of both channels
	h = binary.LittleEndian.AppendUint16(h, 8)        // bits per sample
	h = binary.LittleEndian.AppendUint16(h, 0)        // no extension
	h = append(h, "fact"...)
	h = binary.LittleEndian.AppendUint32(h, 4)
	h = binary.LittleEndian.AppendUint32(h, uint32(sound/channels))
	h = append(h, "data"...)
	return binary.LittleEndian.AppendUint32(h, uint32(sound))
}

// Append adds samples of both channels, which have the same length.
func Append(sound, left, right []byte) []byte {
	for i := range left {
		sound = append(sound, left[i], right[i])
	}
	return sound
}
