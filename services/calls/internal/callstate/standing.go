package callstate

// live is the standing of a call that has not ended.
const live = "live"

// Standing is the status once the call has ended, and one word before: it changes once in a call's life.
func (s Status) Standing() string {
	if s.Terminal() {
		return string(s)
	}
	return live
}

// Lanes are the pairs of direction and standing that may hold a call of this direction and status; "" is any.
func Lanes(direction string, status Status) (directions, standings []string) {
	for _, d := range []string{Inbound, Outbound} {
		for _, s := range []string{live, string(Completed), string(NoAnswer), string(Busy), string(Failed), string(Canceled)} {
			if (direction == "" || direction == d) && (status == "" || status.Standing() == s) {
				directions, standings = append(directions, d), append(standings, s)
			}
		}
	}
	return directions, standings
}
