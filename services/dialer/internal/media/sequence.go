package media

// arrivalVerdict is what a sequence number says about its packet.
type arrivalVerdict int

const (
	// next: the one behind the newest.
	next arrivalVerdict = iota
	// ahead: newer, and some between are missing.
	ahead
	// behind: older than the newest and not seen before.
	behind
	// duplicate: seen before, or so old that nobody knows.
	duplicate
	// wild: far from all others; the far end may have begun anew.
	wild
	// anew: the second of a row far from all others. The count begins here.
	anew
)

// Limits of RFC 3550 A.1, the second by the width of the memory.
const (
	farthest = 3000
	memory   = 64
)

// sequenceNumber counts the packets of one source (RFC 3550 A.1, A.3).
type sequenceNumber struct {
	begun    bool
	newest   uint16
	seen     uint64 // bit n: newest-n was seen
	expected uint64
	received uint64
	follows  int32 // the number that would confirm a new count; -1: none
}

func (s *sequenceNumber) see(number uint16) arrivalVerdict {
	if !s.begun {
		s.begin(number)
		return next
	}
	off := int(int16(number - s.newest))
	switch {
	case off > 0 && off <= farthest:
		s.follows = -1
		s.seen = s.seen<<min(off, memory) | 1 // a shift by 64 empties it
		s.newest = number
		s.expected += uint64(off)
		s.received++
		if off == 1 {
			return next
		}
		return ahead
	case off <= 0 && off > -memory:
		s.follows = -1
		bit := uint64(1) << -off
		if s.seen&bit != 0 {
			return duplicate
		}
		s.seen |= bit
		s.received++
		return behind
	case off <= 0 && off > -farthest:
		return duplicate
	case s.follows == int32(number):
		s.begin(number)
		return anew
	}
	s.follows = int32(number + 1)
	return wild
}

// begin counts from here; what was expected and received before stays counted.
func (s *sequenceNumber) begin(number uint16) {
	s.begun, s.newest, s.seen, s.follows = true, number, 1, -1
	s.expected++
	s.received++
}

// lost is what never came.
func (s *sequenceNumber) lost() uint64 {
	return s.expected - min(s.received, s.expected)
}
