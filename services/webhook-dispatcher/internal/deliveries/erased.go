package deliveries

// The members of an event's data that an erasure takes away. The rest (ids, numbers, times, outcome,
// the customer's own reference) stays, so that the receiver learns how the call ended.
var (
	RemovedMembers = []string{"transcript", "recording_url"} // deleted
	NulledMembers  = []string{"summary"}                     // set to null, if they exist
)
