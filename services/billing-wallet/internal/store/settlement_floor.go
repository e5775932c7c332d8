package store

import (
	"sync"
	"time"
)

const (
	// sweepInterval is the time between two sweeps. A sweep reads pending settlements from the
	// first row.
	sweepInterval = time.Minute
	// floorStep is the minimum increase of the floor (the lowest id that is read). Each increase
	// needs a transaction id, so smaller increases are not worthwhile.
	floorStep = 500
)

// settlementFloor stores the floor: the lowest id from which pending settlements are read. Vacuum
// cannot remove deleted rows while another transaction has an old snapshot. Without the floor, a
// read would visit all these rows.
//
// The floor rises only after all transactions that could commit a lower id have ended
// (docs/adr/0008-read-the-outbox-from-a-floor.md).
//
// The floor is only in memory. After a failover to a server that assigns lower ids, a sweep finds
// the rows that were inserted there.
type settlementFloor struct {
	mu           sync.Mutex
	currentFloor int64
	// nextFloor is the planned value of the floor, or 0 if no increase is planned. It becomes the
	// floor when all database transactions with ids up to takenBy have ended.
	nextFloor, takenBy int64
	lastRead           int64
	lastSweep          time.Time
}

// readStart returns the id at which a read must start at the given time. If sweep is true, the read
// starts at the first row.
func (f *settlementFloor) readStart(now time.Time) (id int64, sweep bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.lastSweep) >= sweepInterval {
		return 0, true
	}
	return f.currentFloor, false
}

// recordRead processes the lowest and the highest id that a query found. Both are 0 if the query
// found no row. All transactions with ids below xmin had ended before the query.
//
// candidate is the next floor, or 0 if the floor does not rise. If it is not 0, the caller must
// take a transaction id and call planIncrease.
func (f *settlementFloor) recordRead(first, last, xmin int64) (candidate int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastRead = max(f.lastRead, last)
	if first > 0 && first < f.currentFloor {
		// the row was committed late, or a server that assigns lower ids inserted it
		f.currentFloor, f.nextFloor, f.lastRead = first, 0, last
	}
	if f.nextFloor > 0 && xmin > f.takenBy {
		if first == 0 || first >= f.nextFloor {
			f.currentFloor = max(f.currentFloor, f.nextFloor)
		}
		f.nextFloor = 0
	}
	candidate = first
	if first == 0 {
		candidate = f.lastRead + 1
	}
	if f.nextFloor > 0 || candidate < f.currentFloor+floorStep {
		return 0
	}
	return candidate
}

// planIncrease plans the next floor: candidate becomes the floor when all transactions with ids up
// to takenBy have ended. takenBy is the id of a transaction that began after the read.
func (f *settlementFloor) planIncrease(candidate, takenBy int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nextFloor, f.takenBy = candidate, takenBy
}

func (f *settlementFloor) lowest() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.currentFloor
}

func (f *settlementFloor) sweptAt(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastSweep = now
}
