package apierr_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/libs/apierr"
)

func TestJoin_CombinesValidationErrors(t *testing.T) {
	t.Parallel()
	name, number := apierr.Validation("name", "must be a string."), apierr.Validation("phone_e164", "is required.")
	broken, gone := errors.New("disk full"), apierr.NotFound("contact")
	tests := []struct {
		name   string
		faults []error
		want   error
	}{
		{name: "no errors", faults: nil, want: nil},
		{name: "only nil errors", faults: []error{nil, nil}, want: nil},
		{name: "one validation error", faults: []error{nil, name}, want: name},
		{
			name: "two validation errors", faults: []error{number, nil, name},
			want: apierr.Unprocessable("validation_error", "phone_e164 is required. name must be a string."),
		},
		{name: "an error with another code is returned alone", faults: []error{name, gone, number}, want: gone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, apierr.Join(tt.faults...)); diff != "" {
				t.Errorf("Join (-want +got):\n%s", diff)
			}
		})
	}
	if got := apierr.Join(name, broken); !errors.Is(got, broken) {
		t.Errorf("Join with another error = %v, want %v", got, broken)
	}
}
