package gate_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

// An accepted policy must have an open window and a stable JSON form. An error must name a field.
func FuzzParsePolicy(f *testing.F) {
	good := `{"window":{"start":"09:00","end":"20:00","days":["mon"]},"timezone":"recipient","packs":["us","in:service"],"override":{"reason":"x"}}`
	bodies := append(testkit.Mutations(good), good)
	for _, w := range testkit.Mutations(`{"start":"09:00","end":"24:00","days":["mon","sun"]}`) {
		bodies = append(bodies, `{"window":`+w+`}`)
	}
	for _, body := range bodies {
		f.Add([]byte(body))
	}
	library := packLibrary(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := gate.ParsePolicy(raw, library)
		if err != nil {
			var refused *apierr.Error
			if !errors.As(err, &refused) {
				t.Fatalf("%q: error = %v, want a %T", raw, err, refused)
			}
			if !strings.HasPrefix(refused.Message, "calling_policy") {
				t.Fatalf(`%q: refused.Message = %q, want it to begin with "calling_policy"`, raw, refused.Message)
			}
			return
		}
		if p.Window.Start < 0 {
			t.Errorf("window of %q = %+v, want an open time", raw, p.Window)
		}
		if p.Window.Start >= p.Window.End {
			t.Errorf("window of %q = %+v, want an open time", raw, p.Window)
		}
		if p.Window.End > window.Midnight {
			t.Errorf("window of %q = %+v, want an open time", raw, p.Window)
		}
		if p.Window.Days == 0 {
			t.Errorf("window of %q = %+v, want an open time", raw, p.Window)
		}
		if _, err := window.LoadZone(p.Timezone); err != nil && p.Timezone != gate.RecipientTimezone {
			t.Errorf("timezone of %q = %q, want recipient or an IANA name", raw, p.Timezone)
		}
		encoded, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var again gate.Policy // the store encodes policies in this JSON form
		if err := json.Unmarshal(encoded, &again); err != nil {
			t.Errorf("%q is stored as %s, which: json.Unmarshal: %v", raw, encoded, err)
		} else if !reflect.DeepEqual(again, p) {
			t.Errorf("%q is stored as %s, which: again = %v, want %v", raw, encoded, again, p)
		}
	})
}
