// Package instant reads the time inside a UUIDv7. The order, the cursor and created_at of every list
// come from the id (contract.md 1.12).

package page

import (
	"time"

	"github.com/google/uuid"
)

// TimeOf is the instant inside a UUIDv7, to the millisecond. Other ids hold none, and what comes out for them means nothing.
func TimeOf(id uuid.UUID) time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC()
}

// beyond is behind the last millisecond that a UUIDv7 holds.
const beyond = 1 << 48

// FirstID is the lowest id of the millisecond that at lies in. An instant that no UUIDv7 can hold comes out as the nearest.
func FirstID(at time.Time) (id uuid.UUID) {
	ms := max(at.UnixMilli(), 0)
	if ms >= beyond {
		return uuid.Max
	}
	for i := range 6 {
		id[5-i] = byte(ms >> (8 * i))
	}
	return id
}
