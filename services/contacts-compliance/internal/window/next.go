package window

import "time"

// Horizon is how far ahead an opening is looked for (contract.md §2).
const Horizon = 30 * 24 * time.Hour

// Next is the earliest instant from `from` on at which the window is open in every zone: `from` itself when
// it is open. ok is false when there is none within Horizon, or no zone.
func (w Window) Next(zones []Zone, from time.Time) (at time.Time, ok bool) {
	return Next([]Clock{{Hours: w, Zones: zones}}, from, from.Add(Horizon))
}

// Next is the earliest instant from `from` to limit at which every clock is open: `from` itself when all are. ok is false when there
// is none, or a clock has no zone.
func Next(clocks []Clock, from, limit time.Time) (at time.Time, ok bool) {
	for at = from; ; {
		latest := at
		for _, c := range clocks {
			if len(c.Zones) == 0 {
				return time.Time{}, false
			}
			for _, z := range c.Zones {
				opening, ok := nextIn(c.Hours, z, at, limit)
				if !ok {
					return time.Time{}, false
				}
				if opening.After(latest) {
					latest = opening
				}
			}
		}
		if latest.Equal(at) {
			return at.UTC(), true
		}
		at = latest // nothing before it is open on all clocks; now see whether it is
	}
}

// nextIn finds the next opening in one zone. Between two changes of a zone's offset local time is plain
// arithmetic, so a range of a day is a range of instants there; a gap or an overlap is a border between two such
// stretches, and each is looked at by itself.
func nextIn(hours Hours, z Zone, from, limit time.Time) (time.Time, bool) {
	for !from.After(limit) {
		local := from.In(z.loc)
		_, seconds := local.Zone()
		offset := time.Duration(seconds) * time.Second
		_, stretchEnd := local.ZoneBounds()
		if stretchEnd.IsZero() || stretchEnd.After(limit) {
			stretchEnd = limit.Add(1) // limit itself still counts
		}
		if opening, ok := nextWithin(hours, DateOf(local), offset, from, stretchEnd); ok {
			return opening, true
		}
		from = stretchEnd
	}
	return time.Time{}, false
}

// nextWithin finds the next opening in [from, end), where the zone keeps one offset; day is the local day of from.
func nextWithin(hours Hours, day Date, offset time.Duration, from, end time.Time) (time.Time, bool) {
	// midnight is the instant at which the local day began, or would have begun with this offset
	for midnight := day.midnight().Add(-offset); midnight.Before(end); day, midnight = day.AddDays(1), midnight.Add(24*time.Hour) {
		for _, r := range hours.On(day) {
			opens, closes := midnight.Add(time.Duration(r.Start)*time.Minute), midnight.Add(time.Duration(r.End)*time.Minute)
			if opens.Before(from) {
				opens = from
			}
			if opens.Before(closes) && opens.Before(end) {
				return opens, true
			}
		}
	}
	return time.Time{}, false
}
