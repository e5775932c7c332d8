// Package instant owns what customers see of time: the instant that an id holds, for created_at, order and cursor of a list are one
// (contract.md §1), and how any instant is shown. It looks at no clock.
package instant

import (
	"time"

	"github.com/google/uuid"
)

// Of is the instant inside a UUIDv7, to the millisecond. Other ids hold none, and what comes out for them means nothing.
func Of(id uuid.UUID) time.Time {
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

// Shown is an instant as every answer and event shows it: UTC, to the millisecond.
func Shown(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// ShownOrNull is Shown, and nil for nil.
func ShownOrNull(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	shown := Shown(*t)
	return &shown
}
