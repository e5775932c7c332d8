package recordings

import "encoding/binary"

const (
	// HeaderBytes is the length of the file header in bytes: the chunks RIFF, fmt (18 bytes), fact and
	// data. The audio follows.
	HeaderBytes = 58
	// Rate is the number of samples per second of each channel. BytesPerSecond is the number of
	// bytes per second of both channels together.
	Rate, BytesPerSecond = 8000, 16000

	mulaw, channels = 7, 2
	// maxBytes is the largest number of audio bytes that the header can contain.
	maxBytes = 1<<32 - 1 - HeaderBytes
)

// Header returns the header of a recording with the given number of audio bytes. The format is RIFF
// WAVE with mu-law (format tag 7) and two channels of 8 kHz, the person on the left and the agent
// on the right.
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
	h = binary.LittleEndian.AppendUint16(h, channels) // bytes per sample of both channels together
	h = binary.LittleEndian.AppendUint16(h, 8)        // bits per sample
	h = binary.LittleEndian.AppendUint16(h, 0)        // length of the extension: 0
	h = append(h, "fact"...)
	h = binary.LittleEndian.AppendUint32(h, 4)
	h = binary.LittleEndian.AppendUint32(h, uint32(sound/channels))
	h = append(h, "data"...)
	return binary.LittleEndian.AppendUint32(h, uint32(sound))
}

// Append appends the samples of both channels to sound, alternating. Both channels must have the
// same length.
func Append(sound, left, right []byte) []byte {
	for i := range left {
		sound = append(sound, left[i], right[i])
	}
	return sound
}
