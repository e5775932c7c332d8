package kafka

import (
	"errors"
	"slices"
	"testing"
)

func TestBacklog_LogsOncePerOutage(t *testing.T) {
	t.Parallel()
	failure := errors.New("coordinator not available")
	b := NewBacklog("calls", nil, nil)
	var logged []int
	for i, err := range []error{failure, failure, nil, failure, failure, failure, failure, nil, failure} {
		if b.countFailure(err) {
			logged = append(logged, i)
		}
	}
	if want := []int{5}; !slices.Equal(logged, want) {
		t.Errorf("logged reads = %v, want %v", logged, want)
	}
}
