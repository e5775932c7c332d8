package store

// VerdictFloor returns the id from which verdicts are read.
func (s *Store) VerdictFloor() int64 { return s.floor.lowest() }
