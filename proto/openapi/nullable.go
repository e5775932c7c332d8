package openapi

import (
	"encoding/json"
	"fmt"
)

// Nullable is a member of a JSON object in a request that changes a resource. The member can be
// absent, null or a value. The zero value is absent and is not encoded.
type Nullable[T any] struct {
	given bool
	value *T
}

// Null returns a member that is null.
func Null[T any]() Nullable[T] { return Nullable[T]{given: true} }

// Value returns a member with a value.
func Value[T any](value T) Nullable[T] { return Nullable[T]{given: true, value: &value} }

// IsZero reports whether the member is absent.
func (n Nullable[T]) IsZero() bool { return !n.given }

// Pointer returns the value, or nil if the member is null or absent.
func (n Nullable[T]) Pointer() *T { return n.value }

// MarshalJSON encodes the value or null.
func (n Nullable[T]) MarshalJSON() ([]byte, error) {
	raw, err := json.Marshal(n.value)
	if err != nil {
		return nil, fmt.Errorf("encode member: %w", err)
	}
	return raw, nil
}

// UnmarshalJSON decodes the value or null. It is called only if the member is present.
func (n *Nullable[T]) UnmarshalJSON(raw []byte) error {
	n.given, n.value = true, nil
	return json.Unmarshal(raw, &n.value) //nolint:wrapcheck // json adds the field name to an unwrapped error only
}
