package deliveries

// The members that an erasure removes from the data of an event. All other members are kept, so
// that the receiver still gets the event of the call with its ids, numbers, times, outcome and the
// customer's external_ref.
var (
	RemovedMembers = []string{"transcript", "recording_url"} // an erasure deletes these members
	NulledMembers  = []string{"summary"}                     // an erasure sets these members to null if they exist
)
