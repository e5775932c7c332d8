package conversation

const (
	// A frame is silent if every sample has at most the magnitude quietSample. A frame is loud if its
	// mean magnitude is above loudSample. The highest magnitude is 32,124.
	quietSample = 256
	loudSample  = 400
)

// magnitude returns the absolute value of a mu-law sample (ITU-T G.711), from 0 to 32,124.
func magnitude(sample byte) int {
	sample = ^sample & 0x7f
	return (int(sample&0x0f)<<3+0x84)<<(sample>>4) - 0x84
}

func loud(frame []byte) bool {
	sum := 0
	for _, sample := range frame {
		sum += magnitude(sample)
	}
	return sum > loudSample*len(frame)
}

// Recorder receives the audio of both sides of a conversation: the person's received audio, and the
// audio that is sent to the person. The sending loop calls Tick every 20 ms with 160 bytes of each
// side. Tick must not block and must not keep the slices.
type Recorder interface {
	Tick(person, agent []byte)
}

const (
	// maxSkew is the maximum number of the person's frames that wait for the recorder.
	maxSkew = 10
	// skewTarget is how many of these frames are kept if maxSkew is exceeded. The older frames are
	// dropped, so that both sides of the recording stay synchronous.
	skewTarget = 3
)

// frameRing is a ring buffer of the person's frames that wait for the recorder.
type frameRing struct {
	frames  [maxSkew + 1][160]byte
	first   int
	n       int
	dropped int64
}

func (h *frameRing) push(frame []byte) {
	if h.n == maxSkew {
		h.dropped += maxSkew - skewTarget
		h.first, h.n = (h.first+maxSkew-skewTarget)%len(h.frames), skewTarget
	}
	at := &h.frames[(h.first+h.n)%len(h.frames)]
	for i := copy(at[:], frame); i < len(at); i++ {
		at[i] = silence
	}
	h.n++
}

// popFrame removes and returns the oldest frame, or nil if the ring is empty.
func (h *frameRing) popFrame() []byte {
	if h.n == 0 {
		return nil
	}
	frame := h.frames[h.first][:]
	h.first, h.n = (h.first+1)%len(h.frames), h.n-1
	return frame
}
