package conversation

const (
	// quietSample is the largest sample of a silent frame, and loudSample the mean of one in which somebody speaks, of 32 124.
	quietSample = 256
	loudSample  = 400
)

// magnitude is a mu-law sample's (ITU-T G.711), 0 to 32 124.
func magnitude(sample byte) int {
	sample = ^sample & 0x7f
	return (int(sample&0x0f)<<3+0x84)<<(sample>>4) - 0x84
}

// loud says that somebody or something is heard in a frame.
func loud(frame []byte) bool {
	sum := 0
	for _, sample := range frame {
		sum += magnitude(sample)
	}
	return sum > loudSample*len(frame)
}

// Recorder keeps both sides of a conversation. Tick is called every 20 ms of the line's time from the loop that sends, with 160 bytes of mu-law of each
// side, as it was heard and as it was sent; it must not block, and the frames are its own only until it returns.
type Recorder interface {
	Tick(person, agent []byte)
}

const (
	// skewMost is how many heard frames may wait for the recorder before those are dropped that are beyond skewLeft: both sides stay together.
	skewMost, skewLeft = 10, 3
)

// heard is a ring of the person's frames on their way to the recorder.
type heard struct {
	frames  [skewMost + 1][160]byte
	first   int
	n       int
	dropped int64
}

func (h *heard) push(frame []byte) {
	if h.n == skewMost {
		h.dropped += skewMost - skewLeft
		h.first, h.n = (h.first+skewMost-skewLeft)%len(h.frames), skewLeft
	}
	at := &h.frames[(h.first+h.n)%len(h.frames)]
	for i := copy(at[:], frame); i < len(at); i++ {
		at[i] = silence
	}
	h.n++
}

// pop is the oldest frame; nil when there is none.
func (h *heard) pop() []byte {
	if h.n == 0 {
		return nil
	}
	frame := h.frames[h.first][:]
	h.first, h.n = (h.first+1)%len(h.frames), h.n-1
	return frame
}
