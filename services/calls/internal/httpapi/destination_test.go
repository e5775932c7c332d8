package httpapi_test

import "testing"

func TestCreate_RefusesAnUnassignedCountryCode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := r.do("POST", "/v1/calls", r.order("to", "+999123456789"))
	if got.status != 422 {
		t.Errorf("status = %d, want 422", got.status)
	}
	if got.code() != "validation_error" {
		t.Errorf("code = %q, want validation_error", got.code())
	}
	if want := "to has a country calling code that is not assigned. Use another number."; got.message() != want {
		t.Errorf("message = %q, want %q", got.message(), want)
	}
}
