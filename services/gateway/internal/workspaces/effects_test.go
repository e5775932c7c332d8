package workspaces

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestServices_ReturnsTheServicesThatUseTheSetting(t *testing.T) {
	t.Parallel()
	tests := []struct {
		member string // the member of the PATCH body
		value  string
		want   []string
	}{
		{member: "name", value: `"y"`},
		{member: "currency", value: `"USD"`}, // the currency cannot be changed
		{member: "mode", value: `"test"`},    // the mode cannot be changed
		{member: "rate_limit_per_minute", value: `7`},
		{member: "plan", value: `"scale"`, want: []string{"dialer", "webhook-dispatcher"}},
		{member: "status", value: `"suspended"`, want: []string{"dialer", "webhook-dispatcher"}},
		{member: "calling_policy", value: `null`, want: []string{"contacts-compliance"}},
		{member: "features", value: `{"api":false}`, want: []string{"calls", "dialer", "webhook-dispatcher"}},
		{member: "max_live_calls", value: `1`, want: []string{"dialer"}},
		{member: "calls_per_second", value: `1`, want: []string{"dialer"}},
		{member: "destinations", value: `["+1"]`, want: []string{"calls", "dialer"}},
		{member: "inbound", value: `{"max_concurrent":1}`, want: []string{"dialer"}},
		{member: "retention", value: `{"calls_days":90}`, want: []string{"calls", "dialer", "webhook-dispatcher"}},
	}
	for _, tt := range tests {
		t.Run(tt.member, func(t *testing.T) {
			t.Parallel()
			var c Change
			if err := json.Unmarshal([]byte(`{"`+tt.member+`":`+tt.value+`}`), &c); err != nil {
				t.Fatalf("decode the body: %v", err)
			}
			if diff := cmp.Diff(tt.want, c.Services(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Services (-want +got):\n%s", diff)
			}
		})
	}
	if got, want := len(tests), reflect.TypeFor[Change]().NumField(); got != want {
		t.Errorf("members in this table = %d, want %d: every member of a body needs a row", got, want)
	}
}
