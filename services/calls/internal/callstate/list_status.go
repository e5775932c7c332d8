package callstate

// liveStatus is the list status of every call that has not ended.
const liveStatus = "live"

// ListStatus returns the status of an ended call, and liveStatus for all other calls. The list
// status changes only once during a call, so an index on it is cheap to maintain.
func (s Status) ListStatus() string {
	if s.Terminal() {
		return string(s)
	}
	return liveStatus
}

// ListPartitions returns the pairs of direction and list status that calls with this direction and
// status can have. The pair with index i is directions[i] and listStatuses[i]. An empty parameter
// matches all calls.
func ListPartitions(direction string, status Status) (directions, listStatuses []string) {
	for _, d := range []string{Inbound, Outbound} {
		for _, s := range []string{liveStatus, string(Completed), string(NoAnswer), string(Busy), string(Failed),
			string(Canceled)} {
			if (direction == "" || direction == d) && (status == "" || status.ListStatus() == s) {
				directions, listStatuses = append(directions, d), append(listStatuses, s)
			}
		}
	}
	return directions, listStatuses
}
