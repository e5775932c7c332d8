package openapi

import "time"

// timestampLayout is RFC 3339 with exactly three decimals. The time must be in UTC.
const timestampLayout = "2006-01-02T15:04:05.000Z"

// Timestamp is a time in responses and events: RFC 3339 in UTC with exactly three decimals. Further
// decimals are cut off, so an encoded time is never later than the exact time. It decodes any RFC
// 3339 time.
type Timestamp struct{ time.Time }

// TimestampOf returns t in UTC, truncated to the millisecond.
func TimestampOf(t time.Time) Timestamp { return Timestamp{Time: t.UTC().Truncate(time.Millisecond)} }

// TimestampOrNull returns TimestampOf(*t), or nil if t is nil.
func TimestampOrNull(t *time.Time) *Timestamp {
	if t == nil {
		return nil
	}
	shown := TimestampOf(*t)
	return &shown
}

// MarshalText encodes the timestamp for a query parameter.
func (t Timestamp) MarshalText() ([]byte, error) {
	return t.UTC().AppendFormat(nil, timestampLayout), nil
}

// MarshalJSON encodes the timestamp as a JSON string.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(nil, `"`+timestampLayout+`"`), nil
}
