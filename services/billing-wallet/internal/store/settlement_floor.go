package store

import (
	"sync"
	"time"
)

const (
	// sweepInterval is the time between two sweeps. A sweep reads pending settlements from the
	// first row.
	sweepInterval = time.Minute
	// floorStep is the minimum increase of the floor (the lowest id that is read). Smaller
	// increases are not worth the transaction id that Unsettled must take for each increase.
	floorStep = 500
)

// settlementFloor stores the floor: the lowest id from which pending settlements are read. Vacuum
// cannot remove deleted rows from the index while another transaction has an old snapshot. Without
// the floor, a read would visit all these rows.
//
// A row with a lower id can be committed after a row with a higher id. So the floor rises only
// after all transactions that could commit a lower id have ended
// (docs/adr/0008-read-the-outbox-from-a-floor.md).
//
// The floor is only in memory. A failover can lead to a server that assigns lower ids. A sweep
// finds the rows that were inserted on that server.
type settlementFloor struct {
	mu sync.Mutex
	id int64
	// next is the next value of the floor. It becomes the floor when all transactions with ids up
	// to takenBy have ended. If next is 0, no increase is planned.
	next, takenBy int64
	last          int64
	swept         time.Time
}

// The method from returns the id at which a read must start at the given time. If sweep is true,
// the read starts at the first row.
func (f *settlementFloor) readStart(now time.Time) (id int64, sweep bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.swept) >= sweepInterval {
		return 0, true
	}
	return f.id, false
}

// The method read processes the ids that a query found. The lowest of these ids is first, and the
// highest is last. Both are 0 if the query found no id. All transactions with ids below xmin had
// ended before the query. The result candidate is the next floor, or 0 if the floor does not rise.
// If candidate is not 0, the caller takes a transaction id and passes both values to the method
// wait.
func (f *settlementFloor) recordRead(first, last, xmin int64) (candidate int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = max(f.last, last)
	if first > 0 && first < f.id {
		// the row was committed late, or a server that assigns lower ids inserted it
		f.id, f.next, f.last = first, 0, last
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

// The method wait plans the next floor: candidate becomes the floor when all transactions with ids
// up to takenBy have ended. takenBy is the id of a transaction that began after the read.
func (f *settlementFloor) planIncrease(candidate, takenBy int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next, f.takenBy = candidate, takenBy
}

func (f *settlementFloor) lowest() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

func (f *settlementFloor) sweptAt(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.swept = now
}
