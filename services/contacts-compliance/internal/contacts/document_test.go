package contacts_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringfence.dev/services/contacts-compliance/internal/contacts"
)

func TestParseDocument_RefusesDocumentsBeyondTheLimits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, given string
		ok          bool
	}{
		{name: "an object", given: `{"a":1}`, ok: true},
		{name: "five levels of nesting", given: `{"a":{"b":{"c":{"d":{"e":1}}}}}`, ok: true},
		{name: "six levels of nesting", given: `{"a":{"b":{"c":{"d":{"e":{}}}}}}`},
		{name: "arrays count as levels", given: `{"a":[[[[[1]]]]]}`},
		{name: "an array", given: `[1]`},
		{name: "a string", given: `"x"`},
		{name: "null", given: `null`},
		{name: "an empty text"},
		{name: "a NUL character in a value", given: `{"a":"x\u0000"}`},
		{name: "a NUL character in a key", given: `{"a\u0000":1}`},
		{name: "invalid UTF-8", given: "{\"a\":\"\xff\"}"},
		{name: "a number above the float range", given: `{"a":1e99999}`, ok: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := contacts.ParseDocument("variables", json.RawMessage(tt.given)); (err == nil) != tt.ok {
				t.Errorf("ParseDocument(%s) = %v, want ok=%v", tt.given, err, tt.ok)
			} else if err != nil && !strings.Contains(err.Error(), "variables") {
				t.Errorf("error = %v, want it to name the field", err)
			}
		})
	}
}

func TestMerge_LimitsApplyToTheMergedDocument(t *testing.T) {
	t.Parallel()
	full := contacts.Document{}
	for i := range contacts.MaxKeys {
		full[fmt.Sprint(i)] = json.RawMessage("1")
	}
	if _, err := full.Merge("metadata", contacts.Document{"one more": json.RawMessage("1")}); err == nil {
		t.Error("Merge of a 101st key = nil, want an error")
	}
	swapped, err := full.Merge("metadata", contacts.Document{"0": json.RawMessage("null"),
		"one more": json.RawMessage("1")})
	if err != nil {
		t.Errorf("replacing a key at the limit: Merge: %v", err)
	} else if len(swapped) != contacts.MaxKeys {
		t.Errorf("replacing a key at the limit: length of swapped = %d, want %d", len(swapped), contacts.MaxKeys)
	}
	half := json.RawMessage(`"` + strings.Repeat("x", contacts.MaxBytes/2) + `"`)
	if _, err := (contacts.Document{"a": half}).Merge("metadata", contacts.Document{"b": half}); err == nil {
		t.Error("Merge to more than 64 KiB = nil, want an error")
	}
	fits := json.RawMessage(`"` + strings.Repeat("<", contacts.MaxBytes-len(`{"a":""}`)) + `"`)
	if _, err := (contacts.Document{}).Merge("metadata", contacts.Document{"a": fits}); err != nil {
		t.Errorf("Merge to exactly 64 KiB: %v", err)
	}
}

func TestMerge_ReplacesTopLevelKeysAndRemovesNullKeys(t *testing.T) {
	t.Parallel()
	before, err := contacts.ParseDocument("m", json.RawMessage(`{"keep":{"x":1},"replace":{"x":1},"gone":1}`))
	if err != nil {
		t.Fatal(err)
	}
	patch, err := contacts.ParseDocument("m",
		json.RawMessage(`{"replace":{"y":null},"gone":null,"never":null,"big":12345678901234567890.10}`))
	if err != nil {
		t.Fatal(err)
	}
	merged, err := before.Merge("m", patch)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(merged.Encode()),
		`{"big":12345678901234567890.10,"keep":{"x":1},"replace":{"y":null}}`; got != want {
		t.Errorf("merged = %s, want %s", got, want)
	}
	if _, ok := before["gone"]; !ok {
		t.Error("Merge changed its receiver")
	}
}

func TestMerge_IsIdempotent(t *testing.T) {
	t.Parallel()
	document := rapid.Custom(func(t *rapid.T) contacts.Document {
		d := contacts.Document{}
		for key, value := range rapid.MapOfN(rapid.StringN(0, 3, 9), rapid.SampledFrom([]string{"1", `"x"`, "{}", "null"}), 0,
			8).Draw(t, "members") {
			d[key] = json.RawMessage(value)
		}
		return d
	})
	rapid.Check(t, func(t *rapid.T) {
		start, err := contacts.Document{}.Merge("m", document.Draw(t, "document"))
		if err != nil {
			t.Fatal(err)
		}
		patch := document.Draw(t, "patch")
		once, err1 := start.Merge("m", patch)
		twice, err2 := once.Merge("m", patch)
		if err1 != nil {
			t.Fatalf("err1 = %v, want nil", err1)
		}
		if err2 != nil {
			t.Fatalf("err2 = %v, want nil", err2)
		}
		if got := string(once.Encode()); got != string(twice.Encode()) {
			t.Fatalf("once.Encode() = %v, want %v", got, string(twice.Encode()))
		}
	})
}

func TestApply_ChangesEitherDNDOrConsent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := contacts.Contact{
			DND: rapid.SampledFrom([]contacts.DND{contacts.DNDUnknown, contacts.Clean, contacts.OptedOut}).Draw(t, "dnd"),
			Consent: rapid.SampledFrom([]contacts.Consent{contacts.ConsentUnknown, contacts.Consented, contacts.Withdrawn}).Draw(
				t, "consent"),
		}
		kind := rapid.SampledFrom([]contacts.Kind{contacts.OptOut, contacts.OptOutRemoved, contacts.ConsentGranted,
			contacts.ConsentWithdrawn}).Draw(t, "kind")
		changed, before, after := c.Apply(kind)
		switch kind {
		case contacts.OptOut, contacts.OptOutRemoved:
			if changed.Consent != c.Consent {
				t.Fatalf("%s: changed.Consent = %v, want %v", kind, changed.Consent, c.Consent)
			}
			if before != string(c.DND) {
				t.Fatalf("%s: before = %v, want %v", kind, before, string(c.DND))
			}
			if after != string(changed.DND) {
				t.Fatalf("%s: after = %v, want %v", kind, after, string(changed.DND))
			}
		default:
			if changed.DND != c.DND {
				t.Fatalf("%s: changed.DND = %v, want %v", kind, changed.DND, c.DND)
			}
			if before != string(c.Consent) {
				t.Fatalf("%s: before = %v, want %v", kind, before, string(c.Consent))
			}
			if after != string(changed.Consent) {
				t.Fatalf("%s: after = %v, want %v", kind, after, string(changed.Consent))
			}
		}
	})
}
