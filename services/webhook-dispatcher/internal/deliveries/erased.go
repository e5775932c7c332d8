package deliveries

// These lists name the JSON members that an erasure changes in the data of an event. All other
// members are unchanged, so that the receiver still gets the ids, numbers, times, outcome and
// external_ref of the call.
var (
	RemovedMembers = []string{"transcript", "recording_url"} // an erasure deletes these members
	NulledMembers  = []string{"summary"}                     // an erasure sets these members to null if they exist
)
