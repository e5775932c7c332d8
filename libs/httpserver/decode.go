package httpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
)

// DecodeJSON decodes the body into v. Invalid JSON, a wrong type, invalid UTF-8 or a NUL character
// is 422 validation_error. A body over MaxBody is 413.
// Unknown fields are ignored, and the last of two equal keys is used. An empty body is an error,
// unless v points to a pointer: the pointer then stays nil.
func DecodeJSON(r *http.Request, v any) error {
	raw, err := ReadBody(r)
	if err != nil {
		return err
	}
	body := bytes.TrimSpace(raw)
	target := reflect.TypeOf(v).Elem()
	optional := target.Kind() == reflect.Pointer
	if optional {
		target = target.Elem()
	}
	if len(body) == 0 {
		if optional {
			return nil
		}
		return apierr.Validation("body", "is missing: send %s.", aJSON(target))
	}
	if err := checkText(body); err != nil {
		return err
	}
	if bytes.Equal(body, []byte("null")) {
		return apierr.Validation("body", "must be %s, not null.", aJSON(target))
	}
	err = json.Unmarshal(removeOtherCase(body, target), v)
	if err == nil {
		return nil
	}
	return decodeFault(body, target, err)
}

// removeOtherCase removes a member such as "TO" if the field is "to". encoding/json would decode
// "TO" into the field, but for the API "TO" is an unknown field.
func removeOtherCase(body []byte, target reflect.Type) []byte {
	if target.Kind() != reflect.Struct {
		return body
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return body
	}
	found := len(members)
	for _, field := range reflect.VisibleFields(target) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		maps.DeleteFunc(members, func(member string, _ json.RawMessage) bool {
			return name != "" && member != name && strings.EqualFold(member, name)
		})
	}
	if len(members) == found {
		return body
	}
	if rest, err := json.Marshal(members); err == nil {
		return rest
	}
	return body
}

// ReadBody reads a body of limited size. A body over the limit is 413. A body that does not arrive
// in time is 408. A broken connection is 422.
func ReadBody(r *http.Request) ([]byte, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, readFault(err)
	}
	return raw, nil
}

func readFault(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return TooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return apierr.New(http.StatusRequestTimeout, "request_timeout", "The request body did not arrive in time. Send it again.")
	}
	return apierr.Validation("body", "could not be read to its end. Send it again.")
}

func decodeFault(body []byte, target reflect.Type, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return notJSON(body, int(syntax.Offset))
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return wrongTypeError(wrong.Field, wrong)
	}
	path, cause := findFaultyField(target, body, err)
	if errors.As(cause, &wrong) {
		return wrongTypeError(path, wrong)
	}
	var shown *apierr.Error
	if errors.As(cause, &shown) {
		return shown
	}
	return apierr.Validation(path, "is not valid: %v.", cause)
}

// wrongTypeError returns the error for a value of the wrong type. Its message contains the kind of
// the JSON value, never the value itself.
func wrongTypeError(path string, wrong *json.UnmarshalTypeError) error {
	if path == "" {
		path = "body"
	}
	got, _, _ := strings.Cut(wrong.Value, " ")
	if aJSON(wrong.Type) == "a whole number" && got == "number" {
		return apierr.Validation(path, "must be a whole number in range.")
	}
	return apierr.Validation(path, "must be %s, not %s.", aJSON(wrong.Type), article(got))
}

// findFaultyField returns the field whose custom type (UUID, time) returned err, because
// encoding/json does not report the field.
func findFaultyField(target reflect.Type, body []byte, err error) (string, error) {
	for target.Kind() == reflect.Pointer {
		target = target.Elem()
	}
	switch {
	case target == reflect.TypeFor[uuid.UUID]():
		return "", &json.UnmarshalTypeError{Value: kindOf(body), Type: target}
	case target == reflect.TypeFor[time.Time]():
		return "", &json.UnmarshalTypeError{Value: kindOf(body), Type: target}
	case target.Kind() == reflect.Struct:
		var members map[string]json.RawMessage
		if json.Unmarshal(body, &members) != nil {
			return "body", err
		}
		return blameMember(target, members, err)
	}
	return "", err
}

func blameMember(target reflect.Type, members map[string]json.RawMessage, err error) (string, error) {
	for i := range target.NumField() {
		field := target.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" && field.Type.Kind() == reflect.Struct {
			if path, cause := blameMember(field.Type, members, nil); cause != nil {
				return path, cause
			}
			continue
		}
		if name == "" {
			name = field.Name
		}
		raw, ok := members[name]
		if !ok || !field.IsExported() {
			continue
		}
		fault := json.Unmarshal(raw, reflect.New(field.Type).Interface())
		if fault == nil {
			continue
		}
		path, cause := findFaultyField(field.Type, raw, fault)
		if path == "" || path == "body" {
			return name, cause
		}
		return name + "." + path, cause
	}
	return "body", err
}

// aJSON returns the JSON type for a Go type, with its article, for example "a string".
func aJSON(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[uuid.UUID]():
		return "a UUID"
	case t == reflect.TypeFor[time.Time]():
		return "a date-time like 2026-06-04T09:00:00Z, with an offset"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	default:
		return "another JSON value"
	}
}

func kindOf(raw []byte) string {
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '"':
		return "string"
	case raw[0] == '{':
		return "object"
	case raw[0] == '[':
		return "array"
	case raw[0] == 't' || raw[0] == 'f':
		return "bool"
	case raw[0] == 'n':
		return "null"
	}
	return "number"
}

func article(kind string) string {
	switch kind {
	case "bool":
		return "true or false"
	case "null", "nothing":
		return kind
	case "object", "array":
		return "an " + kind
	case "string":
		return "this string"
	}
	return "a " + kind
}

func notJSON(body []byte, offset int) error {
	if field := fieldAt(body, offset); field != "" {
		return apierr.Validation(field, "is not valid JSON (near byte %d of the body).", offset)
	}
	return apierr.Validation("body", "is not valid JSON (near byte %d).", offset)
}

func invalidText(body []byte, offset int, what string) error {
	field := fieldAt(body, offset)
	if field == "" {
		field = "body"
	}
	return apierr.Validation(field, "holds %s. Send UTF-8 text without it.", what)
}

// invalidUTF8Offset returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8Offset(body []byte) int {
	if utf8.Valid(body) {
		return -1
	}
	for i := 0; i < len(body); {
		char, size := utf8.DecodeRune(body[i:])
		if char == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}
