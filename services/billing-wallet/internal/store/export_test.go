package store

// SettlementFloor returns the lowest id from which pending settlements are read.
func (s *Store) SettlementFloor() int64 { return s.floor.lowest() }
