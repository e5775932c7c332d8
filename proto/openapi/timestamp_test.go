package openapi

import (
	"encoding/json"
	"testing"
	"time"
)

func TestTimestamp_HasThreeDecimalsInUTC(t *testing.T) {
	t.Parallel()
	rome := time.FixedZone("", 2*60*60)
	tests := []struct {
		name string
		at   time.Time
		want string
	}{
		{name: "whole second", at: time.Date(2026, 6, 4, 9, 0, 0, 0, time.UTC), want: "2026-06-04T09:00:00.000Z"},
		{name: "trailing zeros", at: time.Date(2026, 6, 4, 9, 0, 0, 120_000_000, time.UTC), want: "2026-06-04T09:00:00.120Z"},
		{
			name: "further decimals are cut off", at: time.Date(2026, 6, 4, 9, 0, 0, 999_999_999, time.UTC),
			want: "2026-06-04T09:00:00.999Z",
		},
		{name: "another zone", at: time.Date(2026, 6, 4, 11, 0, 0, 0, rome), want: "2026-06-04T09:00:00.000Z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for name, shown := range map[string]Timestamp{"TimestampOf": TimestampOf(tt.at), "Timestamp": {Time: tt.at}} {
				body, err := json.Marshal(shown)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := string(body), `"`+tt.want+`"`; got != want {
					t.Errorf("%s as JSON = %s, want %s", name, got, want)
				}
				text, err := shown.MarshalText()
				if err != nil {
					t.Fatal(err)
				}
				if got := string(text); got != tt.want {
					t.Errorf("%s as text = %s, want %s", name, got, tt.want)
				}
			}
		})
	}
}

func TestTimestamp_DecodesItsEncodedForm(t *testing.T) {
	t.Parallel()
	want := TimestampOf(time.Date(2026, 6, 4, 9, 0, 0, 5_000_000, time.UTC))
	body, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Timestamp
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if !got.Equal(want.Time) {
		t.Errorf("read %v, want %v", got, want)
	}
}

func TestTimestampOrNull_IsNullForNil(t *testing.T) {
	t.Parallel()
	if got := TimestampOrNull(nil); got != nil {
		t.Errorf("TimestampOrNull(nil) = %v, want nil", got)
	}
}
