package outbox

import "time"

// sweepInterval is how often the relay reads the outbox from its first row.
const sweepInterval = time.Minute

// floor is the lowest id from which the relay must read. All rows below the floor have been
// deleted. While another transaction holds an old snapshot, vacuum cannot remove the deleted rows
// from the index, and a read without a floor would visit all of them.
type floor struct {
	id int64
	// pendingID becomes the floor when all transactions up to deletedBy have ended. It is 0 if no
	// higher floor is pending.
	pendingID int64
	deletedBy int64
	lastSweep time.Time
}

// readFrom returns the id from which the relay must read now. A sweep is a read from the first row.
// Sweeps are needed because a transaction can have an id for its row before it has a transaction
// id, and the floor can rise above such a row.
func (f *floor) readFrom(now time.Time) (id int64, sweep bool) {
	if now.Sub(f.lastSweep) >= sweepInterval {
		return 0, true
	}
	return f.id, false
}

// updateAfterRead updates the floor after a read whose rows were all deleted. lastID is the id of
// the last row, or 0 if the read returned no rows. deletedBy is the id of the transaction that
// deleted the rows, or 0 if another relay had deleted them.
func (f *floor) updateAfterRead(lastID int64, noneLeft bool, xmin, deletedBy int64) {
	// A row with a lower id can be committed after a row with a higher id. The floor rises only when
	// all transactions have ended that were running when the higher row was read. The ids of these
	// transactions are below deletedBy. They need not be below the xmax of the read's snapshot.
	if f.pendingID > 0 && xmin > f.deletedBy && (noneLeft || lastID >= f.pendingID) {
		f.id, f.pendingID = max(f.id, f.pendingID), 0
	}
	if f.pendingID == 0 && lastID+1 > f.id && lastID > 0 && deletedBy > 0 {
		f.pendingID, f.deletedBy = lastID+1, deletedBy
	}
}
