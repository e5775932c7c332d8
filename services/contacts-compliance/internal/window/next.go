package window

import "time"

// Horizon is how far ahead an opening is looked for (contract.md §2).
const Horizon = 30 * 24 * time.Hour

// Next is the earliest instant from `from` on at which the window is open in every zone: `from` itself when
// it is open. ok is false when there is none within Horizon, or no zone.
func (w Window) Next(zones []Zone, from time.Time) (at time.Time, ok bool) {
	if len(zones) == 0 {
		return time.Time{}, false
	}
	limit := from.Add(Horizon)
	for at = from; ; {
		latest := at
		for _, z := range zones {
			opening, ok := w.nextIn(z, at, limit)
			if !ok {
				return time.Time{}, false
			}
			if opening.After(latest) {
				latest = opening
			}
		}
		if latest.Equal(at) {
			return at.UTC(), true
		}
		at = latest // nothing before it is open in all zones; now see whether it is
	}
}

// nextIn finds the next opening in one zone. Between two changes of a zone's offset local time is plain
// arithmetic, so a window's day is a range of instants there; a gap or an overlap is a border between two such
// stretches, and each is looked at by itself.
func (w Window) nextIn(z Zone, from, limit time.Time) (time.Time, bool) {
	for !from.After(limit) {
		local := from.In(z.loc)
		_, seconds := local.Zone()
		offset := time.Duration(seconds) * time.Second
		_, stretchEnd := local.ZoneBounds()
		if stretchEnd.IsZero() || stretchEnd.After(limit) {
			stretchEnd = limit.Add(1) // limit itself still counts
		}
		if opening, ok := w.nextWithin(local, offset, from, stretchEnd); ok {
			return opening, true
		}
		from = stretchEnd
	}
	return time.Time{}, false
}

// nextWithin finds the next opening in [from, end), where the zone keeps one offset.
func (w Window) nextWithin(local time.Time, offset time.Duration, from, end time.Time) (time.Time, bool) {
	year, month, day := local.Date()
	// midnight is the instant at which the local day began, or would have begun with this offset
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Add(-offset)
	for weekday := local.Weekday(); midnight.Before(end); weekday, midnight = (weekday+1)%7, midnight.Add(24*time.Hour) {
		if !w.Days.Has(weekday) {
			continue
		}
		opens, closes := midnight.Add(time.Duration(w.Start)*time.Minute), midnight.Add(time.Duration(w.End)*time.Minute)
		if opens.Before(from) {
			opens = from
		}
		if opens.Before(closes) && opens.Before(end) {
			return opens, true
		}
	}
	return time.Time{}, false
}
