package page

import (
	"time"

	"github.com/google/uuid"
)

// TimeOf returns the time in a UUID of version 7, with a precision of milliseconds. Lists are
// sorted by id, and created_at is read from the id. For an id of another version the result is
// meaningless.
func TimeOf(id uuid.UUID) time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC()
}

// firstInvalidMillisecond is the first millisecond that does not fit into a UUID of version 7.
const firstInvalidMillisecond = 1 << 48

// FirstID returns the lowest id with the millisecond of t. If no UUID of version 7 can have that
// time, it returns the nearest id.
func FirstID(t time.Time) (id uuid.UUID) {
	ms := max(t.UnixMilli(), 0)
	if ms >= firstInvalidMillisecond {
		return uuid.Max
	}
	for i := range 6 {
		id[5-i] = byte(ms >> (8 * i))
	}
	return id
}
