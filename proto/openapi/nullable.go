package openapi

import (
	"encoding/json"
	"fmt"
)

// Nullable is a member of a change, where null means something else than absence. The zero value is absent and is not sent.
type Nullable[T any] struct {
	given bool
	value *T
}

// Null sets the member to null.
func Null[T any]() Nullable[T] { return Nullable[T]{given: true} }

// Value sets the member.
func Value[T any](value T) Nullable[T] { return Nullable[T]{given: true, value: &value} }

// IsZero says whether the member is absent.
func (n Nullable[T]) IsZero() bool { return !n.given }

// Pointer is the value, nil when the member is null or absent.
func (n Nullable[T]) Pointer() *T { return n.value }

// MarshalJSON writes the value or null.
func (n Nullable[T]) MarshalJSON() ([]byte, error) {
	raw, err := json.Marshal(n.value)
	if err != nil {
		return nil, fmt.Errorf("encode member: %w", err)
	}
	return raw, nil
}

// UnmarshalJSON reads the value or null; it is called only for a member that is there.
func (n *Nullable[T]) UnmarshalJSON(raw []byte) error {
	n.given, n.value = true, nil
	return json.Unmarshal(raw, &n.value) //nolint:wrapcheck // its reader looks at it
}
