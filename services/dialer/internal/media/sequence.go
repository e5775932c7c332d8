package media

type arrivalVerdict int

const (
	// next: the number is the newest number plus one.
	next arrivalVerdict = iota
	// ahead: the number is newer than the newest number, and numbers between them are missing.
	ahead
	// behind: the number is older than the newest number and has not been seen before.
	behind
	// duplicate: the number has been seen before, or is too old to be checked.
	duplicate
	// wild: the number is far from all earlier numbers. The far end may have started a new
	// sequence.
	wild
	// anew: this number follows the previous packet's number, and both are far from all earlier
	// numbers. A new sequence starts.
	anew
)

// farthest is the largest jump between two packets of one sequence (RFC 3550 A.1). memory is the
// number of bits in the field seen.
const (
	farthest = 3000
	memory   = 64
)

// sequenceNumber counts the packets of one source (RFC 3550 A.1 and A.3).
type sequenceNumber struct {
	begun    bool
	newest   uint16
	seen     uint64 // bit n is set if the number newest-n was seen
	expected uint64
	received uint64
	follows  int32 // number that would confirm a new sequence; -1 means none
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
		s.seen = s.seen<<min(off, memory) | 1 // a shift by 64 bits sets seen to 0
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

// The counts of the earlier sequence are kept.
func (s *sequenceNumber) begin(number uint16) {
	s.begun, s.newest, s.seen, s.follows = true, number, 1, -1
	s.expected++
	s.received++
}

func (s *sequenceNumber) lost() uint64 {
	return s.expected - min(s.received, s.expected)
}
