package outbox

import "time"

// sweepInterval is how often the relay reads the outbox from its first row.
const sweepInterval = time.Minute

// floor is the lowest id from which the relay has to read. Rows below it are deleted, but while
// another transaction holds an old snapshot, vacuum cannot remove them from the index. Without a
// floor, each read visits all of them, and takes longer and longer.
//
// A row with a lower id can be committed after a row with a higher one. The floor therefore rises
// only when all transactions have ended that were running when the higher row was read. Their ids
// are lower than that of the transaction which deleted the row. (The xmax of a snapshot is no such
// bound: it is one more than the highest id that has ended, and transactions with that id and
// higher ones can be running.) A sweep from the first row once in a while covers a transaction that
// has its row's id but no transaction id yet.
type floor struct {
	// id is the floor.
	id int64
	// next becomes the floor when all transactions up to deletedBy have ended. It is 0 if there is
	// none.
	next      int64
	deletedBy int64
	// swept is the time of the last sweep.
	swept time.Time
}

// from returns the id from which to read at a time.
func (f *floor) from(now time.Time) (id int64, sweep bool) {
	if now.Sub(f.swept) >= sweepInterval {
		return 0, true
	}
	return f.id, false
}

// published updates the floor after a read whose rows were all deleted. last is the id of its last
// row, or 0 if it had no rows. deletedBy is the id of the transaction that deleted the rows, or 0
// if another relay had deleted them. all reports that there were no further rows. Transactions with
// ids below xmin had ended before the read.
func (f *floor) published(last int64, all bool, xmin, deletedBy int64) {
	if f.next > 0 && xmin > f.deletedBy && (all || last >= f.next) {
		f.id, f.next = max(f.id, f.next), 0
	}
	if f.next == 0 && last+1 > f.id && last > 0 && deletedBy > 0 {
		f.next, f.deletedBy = last+1, deletedBy
	}
}
