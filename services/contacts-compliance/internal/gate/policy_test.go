package gate_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/gate"
)

func TestParse_AcceptsValidPolicies(t *testing.T) {
	t.Parallel()
	const everyDay = `["mon","tue","wed","thu","fri","sat","sun"]`
	tests := []struct{ name, given, want string }{
		{name: "null is the default", given: `null`, want: `{"window":{"start":"09:00","end":"20:00","days":` + everyDay +
			`},"timezone":"recipient"}`},
		{name: "an empty policy is the default", want: `{"window":{"start":"09:00","end":"20:00","days":` + everyDay +
			`},"timezone":"recipient"}`},
		{name: "a window of 24 hours", given: `{"window":{"start":"00:00","end":"24:00"}}`,
			want: `{"window":{"start":"00:00","end":"24:00","days":` + everyDay + `},"timezone":"recipient"}`},
		{name: "a window with weekdays and a fixed zone",
			given: `{"window":{"start":"08:30","end":"12:00","days":["fri","mon"]},"timezone":"Europe/Berlin"}`,
			want:  `{"window":{"start":"08:30","end":"12:00","days":["mon","fri"]},"timezone":"Europe/Berlin"}`},
		{name: "a zone alone keeps the default window", given: `{"timezone":"Asia/Kolkata"}`,
			want: `{"window":{"start":"09:00","end":"20:00","days":` + everyDay + `},"timezone":"Asia/Kolkata"}`},
		{name: "an empty list of packs", given: `{"packs":[]}`, want: `{"window":{"start":"09:00","end":"20:00","days":` +
			everyDay + `},"timezone":"recipient"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := gate.ParsePolicy(json.RawMessage(tt.given), packLibrary(t))
			if err != nil {
				t.Fatalf("Parse: %v", err)
			}
			got, err := json.Marshal(p)
			if err != nil {
				t.Errorf("json.Marshal: %v", err)
			} else if string(got) != tt.want {
				t.Errorf("got = %q, want %q", string(got), tt.want)
			}
		})
	}
}

func packLibrary(t testing.TB) countryrules.Library {
	t.Helper()
	l, err := countryrules.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParse_AcceptsPolicyPacksWithAPermittedWindow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, given string
		always      bool
		hours       bool
	}{
		{name: "packs without a window", given: `{"packs":["us","fr:service"]}`, always: true, hours: true},
		{name: "a narrower window needs no override", given: `{"packs":["us"],"window":{"start":"10:00","end":"17:00"}}`,
			hours: true},
		{name: "the same hours need no override", given: `{"packs":["us"],"window":{"start":"08:00","end":"21:00"}}`,
			hours: true},
		{name: "a window inside one of the pack's two ranges",
			given: `{"packs":["fr"],"window":{"start":"14:00","end":"18:00","days":["mon"]}}`,
			hours: true},
		{name: "a wider window with an override reason",
			given: `{"packs":["us"],"window":{"start":"07:00","end":"22:00"},"override":{"reason":"our own staff"}}`},
		{name: "a window in another time zone and the pack both apply",
			given: `{"packs":["us"],"window":{"start":"00:00","end":"24:00"},"timezone":"Europe/Berlin"}`, always: true,
			hours: true},
	} {
		p, err := gate.ParsePolicy(json.RawMessage(tt.given), packLibrary(t))
		if err != nil {
			t.Fatalf("%s: error = %v", tt.name, err)
		}
		if got := p.Window.Always(); got != tt.always {
			t.Errorf("%s: p.Window.Always() = %v, want %v", tt.name, got, tt.always)
		}
		if got := p.PackHours(); got != tt.hours {
			t.Errorf("%s: p.PackHours() = %v, want %v", tt.name, got, tt.hours)
		}
		if len(p.Choices()) == 0 {
			t.Fatalf("%s: Parse = %+v, %v", tt.name, p, err)
		}
		if by := p.WithOperator("ann"); p.Override != nil && (by.Override.Operator != "ann" || p.Override.Operator != "") {
			t.Errorf("%s: override = %+v, original = %+v", tt.name, by.Override, p.Override)
		}
	}
}

func TestParse_ErrorNamesTheField(t *testing.T) {
	t.Parallel()
	for given, field := range map[string]string{
		`[]`: "calling_policy ", `"x"`: "calling_policy ",
		`{"window":{"start":"20:00","end":"09:00"}}`:                "calling_policy.window.start",
		`{"window":{"start":"09:00","end":"09:00"}}`:                "calling_policy.window.start",
		`{"window":{"start":"24:00","end":"24:00"}}`:                "calling_policy.window.start",
		`{"window":{"start":"9:00","end":"20:00"}}`:                 "calling_policy.window.start",
		`{"window":{"start":"09:00","end":"24:30"}}`:                "calling_policy.window.end",
		`{"window":{"start":"09:00"}}`:                              "calling_policy.window.end",
		`{"window":{"start":9,"end":"20:00"}}`:                      "calling_policy.window.start",
		`{"window":7}`:                                              "calling_policy.window",
		`{"window":{"start":"09:00","end":"20:00","days":[]}}`:      "calling_policy.window.days",
		`{"window":{"start":"09:00","end":"20:00","days":["x"]}}`:   "calling_policy.window.days",
		`{"window":{"start":"09:00","end":"20:00","days":"mon"}}`:   "calling_policy.window.days",
		`{"timezone":"Mars/Olympus"}`:                               "calling_policy.timezone",
		`{"timezone":""}`:                                           "calling_policy.timezone",
		`{"timezone":"Local"}`:                                      "calling_policy.timezone",
		`{"packs":["mars"]}`:                                        "calling_policy.packs[0]",
		`{"packs":["us","us:parties"]}`:                             "calling_policy.packs[1]",
		`{"packs":["us","us"]}`:                                     "calling_policy.packs[1]",
		`{"packs":"us"}`:                                            "calling_policy.packs",
		`{"packs":["us"],"window":{"start":"07:00","end":"21:00"}}`: "calling_policy.window",
		// the calling hours of India start at ten
		`{"packs":["us","in"],"window":{"start":"09:00","end":"20:00"}}`: "calling_policy.window",
		// the pack is closed on Sundays
		`{"packs":["de"],"window":{"start":"09:00","end":"20:00"}}`: "calling_policy.window",
		// the pack is closed at lunch
		`{"packs":["fr"],"window":{"start":"10:00","end":"20:00","days":["mon"]}}`:            "calling_policy.window",
		`{"packs":["us"],"override":{"reason":"x"}}`:                                          "calling_policy.window",
		`{"packs":["us"],"window":{"start":"07:00","end":"21:00"},"override":{"reason":" "}}`: "calling_policy.override.reason",
		`{"packs":["us"],"window":{"start":"07:00","end":"21:00"},"override":{}}`:             "calling_policy.override.reason",
		`{"timezone":"` + strings.Repeat("x", 5000) +
			`"}`: "calling_policy.timezone",
		`{"packs":["us"],"window":{"start":"07:00","end":"21:00"},"override":{"reason":"x","operator":"eve"}}`: "calling_policy.override.operator",
		`{"override":{"operator":"eve"}}`:                            "calling_policy.override.operator",
		`{"override":{"reason":"` + strings.Repeat("é", 501) + `"}}`: "calling_policy.override.reason",
	} {
		_, err := gate.ParsePolicy(json.RawMessage(given), packLibrary(t))
		var refusal *apierr.Error
		if !errors.As(err, &refusal) {
			t.Fatalf("Parse(%s) = %v, want validation_error naming %s", given, err, field)
		}
		if refusal.Code != "validation_error" {
			t.Errorf("Parse(%s): code = %s, want validation_error", given, refusal.Code)
		}
		if !strings.HasPrefix(refusal.Message, field) {
			t.Errorf("Parse(%s): message = %s, want it to begin with %s", given, refusal.Message, field)
		}
		if len(refusal.Message) > 300 {
			t.Errorf("Parse(%.40s): length of the message = %d bytes, want less", given, len(refusal.Message))
		}
	}
	if _, err := gate.ParsePolicy(json.RawMessage(`{"override":{"reason":"`+strings.Repeat("é", 500)+`"}}`),
		packLibrary(t)); err != nil {
		t.Errorf("a reason of 500 characters = %v", err)
	}
}
