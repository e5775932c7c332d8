package contacts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// These constants limit variables and metadata (docs/reference/api/README.md#field-sizes).
const (
	MaxKeys  = 100
	MaxDepth = 5 // the object itself is level 1
	MaxBytes = 64 << 10
)

// TimeZoneKey is the metadata key of the contact's IANA time zone.
const TimeZoneKey = "time_zone"

// Document is a customer's JSON object. Its values are kept as they were sent.
type Document map[string]json.RawMessage

// ParseDocument parses an object or a patch, in which null removes a key. If raw is not a valid
// object, it returns a validation_error that names the field.
func ParseDocument(field string, raw json.RawMessage) (Document, error) {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, apierr.Validation(field, "must be an object.")
	}
	if err := checkJSON(trimmed); err != nil {
		return nil, apierr.Validation(field, "%s.", err)
	}
	doc := Document{}
	if err := json.Unmarshal(trimmed, &doc); err != nil {
		return nil, apierr.Validation(field, "cannot be read as JSON.")
	}
	return doc, nil
}

// checkJSON returns an error if raw is nested too deeply or contains text that Postgres cannot
// store.
func checkJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return errors.New("must be valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	for depth := 0; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errors.New("cannot be read as JSON")
		}
		switch t := token.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				depth++
			} else {
				depth--
			}
			if depth > MaxDepth {
				return fmt.Errorf("may be nested at most %d levels deep", MaxDepth)
			}
		case string:
			if strings.ContainsRune(t, 0) {
				return errors.New("must not contain NUL characters")
			}
		}
	}
}

// Merge returns the document with the patch applied to the top level. A null in the patch removes a
// key. If the result exceeds a limit, Merge returns a validation_error that names the field.
func (d Document) Merge(field string, patch Document) (Document, error) {
	merged := make(Document, len(d)+len(patch))
	maps.Copy(merged, d)
	for key, value := range patch {
		if string(value) == "null" {
			delete(merged, key)
			continue
		}
		merged[key] = value
	}
	if len(merged) > MaxKeys {
		return nil, apierr.Validation(field, "may hold at most %d keys after merging; remove one by setting it to null.",
			MaxKeys)
	}
	if len(merged.Encode()) > MaxBytes {
		return nil, apierr.Validation(field, "may be at most %d bytes of JSON after merging.", MaxBytes)
	}
	return merged, nil
}

// Encode returns the compact JSON of the document, or "{}" if it is nil.
func (d Document) Encode() []byte {
	if d == nil {
		return []byte("{}")
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(map[string]json.RawMessage(d)); err != nil {
		return []byte("{}") // unreachable, because every value was parsed as JSON before
	}
	return bytes.TrimSpace(out.Bytes())
}

// TimeZone returns the time zone in the metadata, or nil if there is none. It returns a
// validation_error that names metadata.time_zone if the value is not an IANA name.
func (d Document) TimeZone() (*window.Zone, error) {
	raw, ok := d[TimeZoneKey]
	if !ok {
		return nil, nil
	}
	var name string
	if err := json.Unmarshal(raw, &name); err != nil {
		return nil, apierr.Validation("metadata.time_zone", "must be an IANA time zone name such as Europe/Berlin.")
	}
	zone, err := window.LoadZone(name)
	if err != nil {
		return nil, apierr.Validation("metadata.time_zone", "must be an IANA time zone name such as Europe/Berlin; %s.", err)
	}
	return &zone, nil
}
