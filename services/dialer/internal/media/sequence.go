package media

type arrivalVerdict int

const (
	// verdictNext means that the number is the newest number plus one.
	verdictNext arrivalVerdict = iota
	// verdictAhead means that the number is newer than the newest number, and that numbers between
	// them are missing.
	verdictAhead
	// verdictBehind means that the number is older than the newest number, and has not been received
	// before.
	verdictBehind
	// verdictDuplicate means that the number was received before, or is too old to be checked.
	verdictDuplicate
	// verdictFar means that the number is far from all earlier numbers. Possibly the far end has
	// started a new sequence.
	verdictFar
	// verdictNewSequence means that the number follows the previous packet's number, and that both are
	// far from all earlier numbers.
	verdictNewSequence
)

// maxSequenceJump is the largest jump between two packets of one sequence (RFC 3550 A.1). seenBits
// is the number of bits of the field seen.
const (
	maxSequenceJump = 3000
	seenBits        = 64
)

// sequenceNumber counts the packets of one source (RFC 3550 A.1 and A.3).
type sequenceNumber struct {
	begun    bool
	newest   uint16
	seen     uint64 // bit n is set if the number newest-n was received
	expected uint64
	received uint64
	follows  int32 // number that would confirm a new sequence; -1 means none
}

func (s *sequenceNumber) record(number uint16) arrivalVerdict {
	if !s.begun {
		s.startSequence(number)
		return verdictNext
	}
	off := int(int16(number - s.newest))
	switch {
	case off > 0 && off <= maxSequenceJump:
		s.follows = -1
		s.seen = s.seen<<min(off, seenBits) | 1 // a shift by 64 bits results in 0
		s.newest = number
		s.expected += uint64(off)
		s.received++
		if off == 1 {
			return verdictNext
		}
		return verdictAhead
	case off <= 0 && off > -seenBits:
		s.follows = -1
		bit := uint64(1) << -off
		if s.seen&bit != 0 {
			return verdictDuplicate
		}
		s.seen |= bit
		s.received++
		return verdictBehind
	case off <= 0 && off > -maxSequenceJump:
		return verdictDuplicate
	case s.follows == int32(number):
		s.startSequence(number)
		return verdictNewSequence
	}
	s.follows = int32(number + 1)
	return verdictFar
}

// startSequence starts a new sequence and keeps the counts of the earlier one.
func (s *sequenceNumber) startSequence(number uint16) {
	s.begun, s.newest, s.seen, s.follows = true, number, 1, -1
	s.expected++
	s.received++
}

func (s *sequenceNumber) lost() uint64 {
	return s.expected - min(s.received, s.expected)
}
