package delivery

import "encoding/json"

// The members of an event's data that an erasure takes away. The rest (ids, numbers, times, outcome,
// the customer's own reference) stays, so that the receiver learns how the call ended.
var (
	RemovedMembers = []string{"transcript", "recording_url"} // deleted
	NulledMembers  = []string{"summary"}                     // set to null, if they exist
)

// Strip returns the body of a call's event without what an erasure takes away. It returns an empty
// body if it cannot read the event. webhook_stripped_body in the database does the same for stored
// bodies.
func Strip(body []byte) []byte {
	var envelope, data map[string]json.RawMessage
	if json.Unmarshal(body, &envelope) != nil || json.Unmarshal(envelope["data"], &data) != nil || data == nil {
		return []byte{}
	}
	for _, name := range NulledMembers {
		if _, found := data[name]; found {
			data[name] = json.RawMessage("null")
		}
	}
	for _, name := range RemovedMembers {
		delete(data, name)
	}
	var err error
	if envelope["data"], err = json.Marshal(data); err != nil {
		return []byte{}
	}
	stripped, err := json.Marshal(envelope)
	if err != nil {
		return []byte{}
	}
	return stripped
}
