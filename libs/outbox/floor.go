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
	// pendingID is the next floor, or 0 if there is none. It becomes the floor when all transactions
	// up to deletedBy have ended.
	pendingID int64
	deletedBy int64
	lastSweep time.Time
}

// readFrom returns the id from which the relay must read now. A sweep is a read from the first row.
// Sweeps are necessary because a transaction can take the id of its row before it gets a
// transaction id. The floor can then rise above this row.
func (f *floor) readFrom(now time.Time) (id int64, sweep bool) {
	if now.Sub(f.lastSweep) >= sweepInterval {
		return 0, true
	}
	return f.id, false
}

// updateAfterRead updates the floor after a read whose rows were all deleted. lastID is the id of
// the last row, or 0 if there were no rows. deletedBy is the id of the transaction that deleted the
// rows, or 0 if another relay had already deleted them.
func (f *floor) updateAfterRead(lastID int64, noneLeft bool, xmin, deletedBy int64) {
	// A row with a lower id can commit after a row with a higher id. So the floor may rise only after
	// the end of all transactions that were running when the row with the higher id was read. The ids
	// of these transactions are below deletedBy, but not always below the xmax of the read's snapshot.
	if f.pendingID > 0 && xmin > f.deletedBy && (noneLeft || lastID >= f.pendingID) {
		f.id, f.pendingID = max(f.id, f.pendingID), 0
	}
	if f.pendingID == 0 && lastID+1 > f.id && lastID > 0 && deletedBy > 0 {
		f.pendingID, f.deletedBy = lastID+1, deletedBy
	}
}
