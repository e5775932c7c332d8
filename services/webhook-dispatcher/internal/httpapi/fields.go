package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/proto/openapi"
)

// bodyReader reads the members of a request body and collects the errors, so that one response
// names every invalid field. A member that is null counts as absent.
type bodyReader struct {
	members map[string]json.RawMessage
	faults  []string
}

func decodeFields(r *http.Request) (*bodyReader, error) {
	var f bodyReader
	if err := httpserver.DecodeJSON(r, &f.members); err != nil {
		return nil, err
	}
	return &f, nil
}

func (f *bodyReader) given(name string) bool {
	raw, ok := f.members[name]
	return ok && string(raw) != "null"
}

// readText returns the string in a member, or nil if the member is absent. If the member is not a
// string, readText records an error and returns nil.
func (f *bodyReader) readText(name string) *string {
	var value *string
	if !f.given(name) {
		return nil
	}
	if err := json.Unmarshal(f.members[name], &value); err != nil {
		f.recordError(apierr.Validation(name, "must be a string."))
		return nil
	}
	return value
}

// readEvents returns the event types in the member events, or nil if the member is absent. If the
// member is not an array of strings, readEvents records an error and returns nil.
func (f *bodyReader) readEvents() []openapi.EventType {
	if !f.given("events") {
		return nil
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(f.members["events"], &raw); err != nil {
		f.recordError(apierr.Validation("events", "must be an array of event types."))
		return nil
	}
	events := make([]openapi.EventType, len(raw))
	isNoString := func(element json.RawMessage) bool { return element[0] != '"' }
	if slices.ContainsFunc(raw, isNoString) || json.Unmarshal(f.members["events"], &events) != nil {
		f.recordError(apierr.Validation("events", "must be an array of event types, each a string."))
		return nil
	}
	return events
}

func (f *bodyReader) recordError(fault *apierr.Error) {
	if fault != nil {
		f.faults = append(f.faults, fault.Message)
	}
}

// validationError returns one validation_error with the messages of all recorded errors, or nil.
func (f *bodyReader) validationError() error {
	if len(f.faults) == 0 {
		return nil
	}
	return apierr.Unprocessable("validation_error", "%s", strings.Join(f.faults, " "))
}
