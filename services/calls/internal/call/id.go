package call

import (
	"time"

	"github.com/google/uuid"
)

// maxMillis is beyond the last millisecond that a UUIDv7 holds.
const maxMillis = 1 << 48

// CreatedAt is the instant inside a UUIDv7 (contract.md §1: order, cursor and created_at are one).
func CreatedAt(id uuid.UUID) time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC()
}

// FirstIDAt is the lowest id of the millisecond that at lies in. An instant that no UUIDv7 can hold comes out as the nearest.
func FirstIDAt(at time.Time) (id uuid.UUID) {
	ms := max(at.UnixMilli(), 0)
	if ms >= maxMillis {
		return uuid.Max
	}
	for i := range 6 {
		id[5-i] = byte(ms >> (8 * i))
	}
	return id
}
