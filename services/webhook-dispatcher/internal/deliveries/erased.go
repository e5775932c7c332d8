package deliveries

// The members of an event's data that an erasure removes. All other members stay, so that a
// receiver still gets the end of the call: ids, numbers, times, outcome, and the customer's own
// reference.
var (
	RemovedMembers = []string{"transcript", "recording_url"} // an erasure deletes these members
	NulledMembers  = []string{"summary"}                     // an erasure sets these members to null if they exist
)
