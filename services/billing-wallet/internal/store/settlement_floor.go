package store

import (
	"sync"
	"time"
)

const (
	// sweepInterval is how often Unsettled reads pending settlements from the first row.
	sweepInterval = time.Minute
	// floorStep is how far the floor has to rise before Unsettled takes a transaction id for it.
	floorStep = 500
)

// settlementFloor is the lowest id from which pending settlements are read. While another
// transaction holds an old snapshot, vacuum cannot remove the deleted rows from the index, and a
// read from the first row visits all of them. A row with a lower id can be committed after one with
// a higher id. Therefore the floor rises as that of the outbox relay does
// (docs/adr/0008-read-the-outbox-from-a-floor.md). It is only in memory: a sweep finds rows that
// were inserted after a failover to a server with lower ids.
type settlementFloor struct {
	mu sync.Mutex
	// id is the floor.
	id int64
	// next becomes the floor when all transactions up to takenBy have ended. It is 0 if there is
	// none.
	next, takenBy int64
	// last is the highest id that was read.
	last int64
	// swept is the time of the last sweep.
	swept time.Time
}

// from returns the id from which to read at a time.
func (f *settlementFloor) from(now time.Time) (id int64, sweep bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.swept) >= sweepInterval {
		return 0, true
	}
	return f.id, false
}

// read processes a read that found ids from first to last; both are 0 if it found none.
// Transactions with ids below xmin had ended before the read. candidate is the next floor, or 0 if
// there is none. The caller takes a transaction id and passes both to wait.
func (f *settlementFloor) read(first, last, xmin int64) (candidate int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = max(f.last, last)
	if first > 0 && first < f.id {
		f.id, f.next, f.last = first, 0, last // a late commit, or a server with lower ids
	}
	if f.next > 0 && xmin > f.takenBy {
		if first == 0 || first >= f.next {
			f.id = max(f.id, f.next)
		}
		f.next = 0
	}
	candidate = first
	if first == 0 {
		candidate = f.last + 1
	}
	if f.next > 0 || candidate < f.id+floorStep {
		return 0
	}
	return candidate
}

// wait makes candidate the floor after all transactions up to takenBy have ended. takenBy is the id
// of a transaction that began after the read.
func (f *settlementFloor) wait(candidate, takenBy int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next, f.takenBy = candidate, takenBy
}

// lowest returns the floor.
func (f *settlementFloor) lowest() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// sweptAt stores the time of a sweep.
func (f *settlementFloor) sweptAt(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.swept = now
}
