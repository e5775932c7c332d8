package store

import (
	"sync"
	"time"
)

const (
	// sweepInterval is the time between two sweeps. A sweep reads pending settlements from the
	// first row.
	sweepInterval = time.Minute
	// floorStep is the minimum increase of the floor. Unsettled takes a transaction id only for a
	// larger increase.
	floorStep = 500
)

// settlementFloor is the floor: the lowest id from which pending settlements are read. While
// another transaction holds an old snapshot, vacuum cannot remove deleted rows from the index. A
// read from the first row would visit all of these rows. A row with a lower id can be committed
// after a row with a higher id. Therefore the floor rises in the same way as the floor of the
// outbox relay (docs/adr/0008-read-the-outbox-from-a-floor.md). The floor is only in memory. A
// failover can lead to a server that assigns lower ids; a sweep finds the rows that were inserted
// there.
type settlementFloor struct {
	mu sync.Mutex
	// id is the floor.
	id int64
	// next is the next value of the floor, after all transactions up to takenBy have ended. next is
	// 0 if there is no next value.
	next, takenBy int64
	// last is the highest id that was read.
	last int64
	// swept is the time of the last sweep.
	swept time.Time
}

// from returns the id at which a read at the time now must start. sweep is true if the read starts
// at the first row.
func (f *settlementFloor) from(now time.Time) (id int64, sweep bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.swept) >= sweepInterval {
		return 0, true
	}
	return f.id, false
}

// read processes the result of a read. first and last are the lowest and the highest id that the
// read found, or 0 if it found none. Transactions with ids below xmin had ended before the read.
// candidate is the next floor, or 0 if there is none. The caller takes a transaction id and passes
// both values to the method wait.
func (f *settlementFloor) read(first, last, xmin int64) (candidate int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = max(f.last, last)
	if first > 0 && first < f.id {
		f.id, f.next, f.last = first, 0, last // a row was committed late, or the server assigns lower ids
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

// sweptAt stores the time of the last sweep.
func (f *settlementFloor) sweptAt(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.swept = now
}
