package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"ringfence.dev/libs/seal"
)

func key(id string, fill byte) string {
	return id + "=" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func box(t *testing.T, keys ...string) *seal.Box {
	t.Helper()
	b, err := seal.New(seal.Config{Keys: keys})
	if err != nil {
		t.Fatalf("New(%d keys): %v", len(keys), err)
	}
	return b
}

func TestOpen_RejectsAChangedCiphertextOrSecretName(t *testing.T) {
	t.Parallel()
	b := box(t, key("k1", 1))
	sealed, err := b.Seal([]byte("whsec_secret"), "subscription-1")
	if err != nil {
		t.Fatalf("Seal: %v", err)
	}
	if bytes.Contains(sealed, []byte("secret")) {
		t.Fatalf("the sealed text shows the secret: %q", sealed)
	}
	plain, err := b.Open(sealed, "subscription-1")
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if string(plain) != "whsec_secret" {
		t.Fatalf(`Open: plain = %q, want "whsec_secret"`, string(plain))
	}
	if _, err := b.Open(sealed, "subscription-2"); err == nil {
		t.Error("a secret moved to another row still opens")
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := b.Open(changed, "subscription-1"); err == nil {
			t.Errorf("the sealed text opens with byte %d changed", i)
		}
	}
	for n := range sealed {
		if _, err := b.Open(sealed[:n], "subscription-1"); err == nil {
			t.Errorf("the sealed text opens cut to %d bytes", n)
		}
	}
}

func TestSeal_ReturnsADifferentCiphertextEachTime(t *testing.T) {
	t.Parallel()
	b := box(t, key("k1", 1))
	one, _ := b.Seal([]byte("same"), "x")
	two, _ := b.Seal([]byte("same"), "x")
	if bytes.Equal(one, two) {
		t.Error("two sealings of one text are equal: the nonce repeats")
	}
}

func TestOpen_DecryptsWithOlderKeys(t *testing.T) {
	t.Parallel()
	before := box(t, key("k1", 1))
	sealed, err := before.Seal([]byte("old"), "x")
	if err != nil {
		t.Fatalf("Seal: %v", err)
	}
	during := box(t, key("k2", 2), key("k1", 1))
	if plain, err := during.Open(sealed, "x"); err != nil {
		t.Errorf("Open with both keys: %v", err)
	} else if string(plain) != "old" {
		t.Errorf(`Open with both keys: plain = %q, want "old"`, string(plain))
	}
	fresh, err := during.Seal([]byte("new"), "x")
	if err != nil {
		t.Fatalf("Seal: %v", err)
	}
	if _, err := before.Open(fresh, "x"); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("Open under a key not configured = %v, want ErrUnknownKey", err)
	}
}

func TestNew_RejectsInvalidKeys(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		keys []string
	}{
		{"no key", nil},
		{"key without an id", []string{"=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}},
		{"entry without an equals sign", []string{"k1"}},
		{"key that is not base64", []string{"k1=!!!"}},
		{"key of 16 bytes", []string{"k1=" + base64.StdEncoding.EncodeToString(make([]byte, 16))}},
		{"two keys with one id", []string{key("k1", 1), key("k1", 2)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := seal.New(seal.Config{Keys: tt.keys}); err == nil {
				t.Errorf("New(%q) succeeded", tt.keys)
			}
		})
	}
}

func TestNew_ErrorDoesNotShowAKeyWithoutID(t *testing.T) {
	t.Parallel()
	// This key ends in "=", so New reads everything before the "=" as an id.
	secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	_, err := seal.New(seal.Config{Keys: []string{secret}})
	if err == nil {
		t.Error("New without an id = nil, want an error")
	} else if strings.Contains(err.Error(), secret[:20]) {
		t.Errorf("New without an id: err = %q, want it without %q", err.Error(), secret[:20])
	}
}

func TestReseal_EncryptsWithTheFirstKey(t *testing.T) {
	t.Parallel()
	sealed, err := box(t, key("k1", 1)).Seal([]byte("secret"), "x")
	if err != nil {
		t.Fatalf("Seal: %v", err)
	}
	both := box(t, key("k2", 2), key("k1", 1))
	again, current, err := both.Reseal(sealed, "x")
	if err != nil {
		t.Fatal(err)
	}
	if current {
		t.Fatalf("current = true, want false")
	}
	if seal.KeyID(sealed) != "k1" {
		t.Fatalf("seal.KeyID(sealed) = %q, want \"k1\"", seal.KeyID(sealed))
	}
	if seal.KeyID(again) != "k2" {
		t.Fatalf("seal.KeyID(again) = %q, want \"k2\"", seal.KeyID(again))
	}
	if plain, err := box(t, key("k2", 2)).Open(again, "x"); err != nil {
		t.Errorf("Open without the old key: %v", err)
	} else if string(plain) != "secret" {
		t.Errorf(`Open without the old key: plain = %q, want "secret"`, string(plain))
	}
	same, current, err := both.Reseal(again, "x")
	if err != nil {
		t.Fatal(err)
	}
	if !current {
		t.Errorf("current = false, want true")
	}
	if !bytes.Equal(same, again) {
		t.Errorf("same = %v, want %v", same, again)
	}
	if _, _, err := both.Reseal(again, "y"); err == nil {
		t.Error("a text about something else is current: it does not open")
	}
	if _, _, err := box(t, key("k3", 3)).Reseal(again, "x"); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("Reseal of a text under a key not configured = %v, want ErrUnknownKey", err)
	}
	if _, _, err := box(t, key("k2", 9)).Reseal(again, "x"); err == nil {
		t.Error("Reseal under another key of the same id = nil, want an error")
	} else if errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("Reseal under another key of the same id: Reseal = %v, want another error", err)
	}
	if id := seal.KeyID([]byte{9, 'k'}); id != "" {
		t.Errorf("KeyID of a broken text = %q, want none", id)
	}
}
