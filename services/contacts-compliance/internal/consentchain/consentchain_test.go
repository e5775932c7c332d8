package consentchain_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/services/contacts-compliance/internal/consentchain"
)

func keys(t testing.TB, stand string, entries ...string) *consentchain.Keys {
	t.Helper()
	made, err := consentchain.NewKeys(entries, stand)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func entry(id string, fill byte) string {
	return id + "=" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(fill), 32)))
}

func exampleRow() consentchain.Row {
	number, contact, call, before, after, reason := "+15005550001", uuid.UUID{1}, uuid.UUID{2}, "unknown", "dnd", "asked"
	at := time.Date(2026, 6, 15, 12, 0, 0, 123456000, time.UTC)
	return consentchain.Row{WorkspaceID: uuid.UUID{3}, RecordedAt: at, ID: uuid.UUID{4}, Number: &number,
		ContactID: &contact, Kind: "opt_out", Source: "call", Actor: "call:x",
		Reason: &reason, Evidence: json.RawMessage(`{"said": "no"}`), CallID: &call, Before: &before, After: &after,
		OccurredAt: at.Add(-time.Second)}
}

// Stored signatures are verified for years, so the signed bytes must never change.
func TestSign_SignedBytesEqualThoseOfEarlierVersions(t *testing.T) {
	t.Parallel()
	k := keys(t, "", entry("k1", 'a'))
	row, bare := exampleRow(), consentchain.Row{Kind: "opt_out"}
	second := bare.Sign(k, row.Sign(k, consentchain.Link{}))
	head := k.SignHead(row.WorkspaceID, second)
	for what, pair := range map[string][2]string{
		"MAC of the first row": {hex.EncodeToString(row.MAC),
			"056fb0ec0f535474080fc7a4235ccf0ecd4606c0b506d743c6509bfc6f2f2b8e"},
		"MAC of the next row": {hex.EncodeToString(second.MAC),
			"c20353a5494c61fae01ff6c436d390822e9faa23b6774c6873054cec6b25e982"},
		"sum of the head": {hex.EncodeToString(head.Sum), "51057d6660472bfea886674d428487b0d67c898addc4e49f3ec34f6782d8f9ee"},
		"sum of a start": {hex.EncodeToString(k.SignStart(row.WorkspaceID, second).Sum),
			"7c3a030a697384c656138568d0662ab23e8fcab4624d0a8f3f6642a37e6ef07c"},
		"signature by the derived key": {signedBy(keys(t, "stand")),
			"signing-388d2978 275ae45a1a5342290094e865236f6370063026bf75304c5ff0ecb241628284e9"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("signature of %s = %s, want %s", what, pair[0], pair[1])
		}
	}
	if row.Seq != 1 {
		t.Errorf("row.Seq = %v, want 1", row.Seq)
	}
	if second.Seq != 2 {
		t.Errorf("second.Seq = %v, want 2", second.Seq)
	}
	if row.KeyID != "k1" {
		t.Errorf("row.KeyID = %v, want k1", row.KeyID)
	}
}

func signedBy(k *consentchain.Keys) string {
	row := exampleRow()
	row.Sign(k, consentchain.Link{})
	return row.KeyID + " " + hex.EncodeToString(row.MAC)
}

func walk(k *consentchain.Keys, head consentchain.SignedLink, rows ...consentchain.Row) *consentchain.Break {
	chain := consentchain.NewVerifier(uuid.UUID{3}, k, nil, consentchain.Link{})
	for _, row := range rows {
		chain.Add(row)
	}
	return chain.Finish(&head)
}

func TestVerifier_NeedsTheOldAndTheNewKeyAfterARotation(t *testing.T) {
	t.Parallel()
	old, both, fresh := keys(t, "", entry("old", 'a')), keys(t, "", entry("new", 'b'), entry("old", 'a')),
		keys(t, "", entry("new", 'b'))
	first, second := exampleRow(), exampleRow()
	at := second.Sign(both, first.Sign(old, consentchain.Link{}))
	head := both.SignHead(uuid.UUID{3}, at)
	if first.KeyID != "old" {
		t.Errorf(`first.KeyID = %q, want "old"`, first.KeyID)
	} else if second.KeyID != "new" {
		t.Errorf(`second.KeyID = %q, want "new"`, second.KeyID)
	}
	if broken := walk(both, head, first, second); broken != nil {
		t.Errorf("with both keys: %v", broken)
	}
	broken := walk(fresh, head, first, second)
	if broken == nil {
		t.Fatalf("without the old key: break = %v, want the first row", broken)
	}
	if broken.Seq != 1 {
		t.Errorf("without the old key: broken.Seq = %v, want 1", broken.Seq)
	}
	if !strings.Contains(broken.Why, consentchain.ErrUnknownKey.Error()) {
		t.Errorf("without the old key: break = %s, want it to contain %q", broken.Why, consentchain.ErrUnknownKey.Error())
	}
	if !strings.Contains(broken.String(), `"old"`) {
		t.Errorf("without the old key: break = %s, want it to contain %q", broken.String(), `"old"`)
	}
	stood := keys(t, "stand")
	first.Sign(stood, consentchain.Link{})
	if broken := walk(keys(t, "stand", entry("new", 'b')),
		keys(t, "stand").SignHead(uuid.UUID{3}, consentchain.Link{Seq: 1, MAC: first.MAC}), first); broken != nil {
		t.Errorf("a row signed with the derived key, after a key was configured: %v", broken)
	}
	for _, wrong := range [][]string{{"k"}, {"=" + entry("", 'a')}, {"k=!"}, {"k=YQ=="},
		{entry("k", 'a'), entry("k", 'b')}, {entry(strings.Repeat("k", 65), 'a')}, {}} {
		if _, err := consentchain.NewKeys(wrong, ""); err == nil {
			t.Errorf("%q: NewKeys = nil, want an error", wrong)
		} else if strings.Contains(err.Error(), "YWFh") {
			t.Errorf(`%q: err = %q, want it without "YWFh"`, wrong, err.Error())
		}
	}
	if err := both.CheckHead(uuid.UUID{4}, head); !errors.Is(err, consentchain.ErrForged) {
		t.Errorf("a head under another workspace: %v", err)
	}
	if err := both.CheckStart(uuid.UUID{3}, head); !errors.Is(err, consentchain.ErrForged) {
		t.Errorf("a head in place of a start: %v", err)
	}
}

// The fields of these two rows have the same text when they are concatenated. Their signatures must
// differ.
func TestSign_DifferentRowsHaveDifferentSignatures(t *testing.T) {
	t.Parallel()
	k := keys(t, "", entry("k", 'a'))
	text := rapid.SampledFrom([]string{"", "a", "aa", "\x00", "null", "aaa"})
	optional := func(rt *rapid.T, name string) *string {
		if rapid.Bool().Draw(rt, name+"?") {
			return nil
		}
		value := text.Draw(rt, name)
		return &value
	}
	draw := func(rt *rapid.T, name string) consentchain.Row {
		return consentchain.Row{Kind: text.Draw(rt, name+" kind"), Source: text.Draw(rt, name+" source"),
			Actor:  text.Draw(rt, name+" actor"),
			Number: optional(rt, name+" number"), Reason: optional(rt, name+" reason"), Before: optional(rt, name+" before"),
			After: optional(rt, name+" after")}
	}
	rapid.Check(t, func(rt *rapid.T) {
		one, other := draw(rt, "one"), draw(rt, "other")
		show := func(r consentchain.Row) string { out, _ := json.Marshal(r); return string(out) }
		same := show(one) == show(other)
		one.Sign(k, consentchain.Link{})
		other.Sign(k, consentchain.Link{})
		if (hex.EncodeToString(one.MAC) == hex.EncodeToString(other.MAC)) != same {
			rt.Fatalf("rows %s and %s: equal rows = %t, equal signatures = %t", show(one), show(other), same, !same)
		}
	})
}
