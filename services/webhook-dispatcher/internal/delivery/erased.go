package delivery

import "encoding/json"

// Strip is the body of a call's event without what an erasure takes: the summary is null, transcript and recording are not there. The rest
// (ids, numbers, times, outcome, the customer's own reference) stays, so that the receiver learns how the call ended. What cannot be read comes out empty.
func Strip(body []byte) []byte {
	var envelope, data map[string]json.RawMessage
	if json.Unmarshal(body, &envelope) != nil || json.Unmarshal(envelope["data"], &data) != nil || data == nil {
		return []byte{}
	}
	if _, stands := data["summary"]; stands {
		data["summary"] = json.RawMessage("null")
	}
	delete(data, "transcript")
	delete(data, "recording_url")
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
