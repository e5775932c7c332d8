package window

import "time"

// Horizon is the period in which Next searches for an opening
// (docs/reference/api/call-requests.md#closed-calling-window).
const Horizon = 30 * 24 * time.Hour

// Next returns the first time, at or after start, at which the window is open in every zone. ok is
// false if there is no such time within Horizon, or if there is no zone.
func (w Window) Next(zones []Zone, start time.Time) (at time.Time, ok bool) {
	return Next([]Clock{{Hours: w, Zones: zones}}, start, start.Add(Horizon))
}

// Next returns the first time in [start, limit] at which every clock is open. ok is false if there
// is no such time, or if a clock has no zone.
func Next(clocks []Clock, start, limit time.Time) (at time.Time, ok bool) {
	for at = start; ; {
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
		at = latest // at least one clock is closed before this time, so all clocks are checked again
	}
}

// nextIn returns the next opening in one zone. Between two changes of the zone's UTC offset, local
// time advances at the same rate as UTC. So each period between two changes is searched separately.
func nextIn(hours Hours, z Zone, start, limit time.Time) (time.Time, bool) {
	for !start.After(limit) {
		local := start.In(z.loc)
		_, seconds := local.Zone()
		offset := time.Duration(seconds) * time.Second
		_, stretchEnd := local.ZoneBounds()
		if stretchEnd.IsZero() || stretchEnd.After(limit) {
			stretchEnd = limit.Add(1) // limit is included
		}
		if opening, ok := nextWithin(hours, DateOf(local), offset, start, stretchEnd); ok {
			return opening, true
		}
		start = stretchEnd
	}
	return time.Time{}, false
}

// nextWithin returns the next opening in [start, end). The zone's offset must not change in this
// period. day is the local day at start.
func nextWithin(hours Hours, day Date, offset time.Duration, start, end time.Time) (time.Time, bool) {
	// midnight is the start of the local day. It is computed as if the offset applied to the whole
	// day.
	for midnight := day.midnight().Add(-offset); midnight.Before(end); day, midnight = day.AddDays(1),
		midnight.Add(24*time.Hour) {
		for _, r := range hours.On(day) {
			opens, closes := midnight.Add(time.Duration(r.Start)*time.Minute), midnight.Add(time.Duration(r.End)*time.Minute)
			if opens.Before(start) {
				opens = start
			}
			if opens.Before(closes) && opens.Before(end) {
				return opens, true
			}
		}
	}
	return time.Time{}, false
}
