package outbox

import "time"

// sweepInterval is the time between two sweeps, in which the relay reads the outbox from its first
// row.
const sweepInterval = time.Minute

// floor is the lowest id from which the relay must read: all rows with lower ids are deleted. While
// another transaction has an old snapshot, vacuum cannot remove the deleted rows from the index,
// and a read without a floor would visit all of them.
type floor struct {
	id int64
	// pendingID becomes the floor when all transactions up to deletedBy have ended. 0 means none.
	pendingID int64
	deletedBy int64
	lastSweep time.Time
}

// readFrom returns the lowest id that the relay must read now. A sweep reads from the first row.
func (f *floor) readFrom(now time.Time) (id int64, sweep bool) {
	if now.Sub(f.lastSweep) >= sweepInterval {
		// A row can be below the floor, if its transaction got the row id before its transaction id.
		return 0, true
	}
	return f.id, false
}

// updateAfterRead updates the floor after all rows of a read were deleted. lastID is the id of the
// last row, or 0 without rows. deletedBy is the transaction that deleted the rows, or 0 if another
// relay had deleted them.
func (f *floor) updateAfterRead(lastID int64, noneLeft bool, xmin, deletedBy int64) {
	// Transactions that were running during the read can still commit rows with lower ids. So the
	// floor rises only after the end of these transactions. Their ids are below deletedBy, but not
	// always below the xmax of the read's snapshot.
	if f.pendingID > 0 && xmin > f.deletedBy && (noneLeft || lastID >= f.pendingID) {
		f.id, f.pendingID = max(f.id, f.pendingID), 0
	}
	if f.pendingID == 0 && lastID+1 > f.id && lastID > 0 && deletedBy > 0 {
		f.pendingID, f.deletedBy = lastID+1, deletedBy
	}
}
