package seal_test

import (
	"bytes"
	"encoding/base64"
	"testing"

	"ringfence.dev/libs/seal"
)

// FuzzOpen checks that Open accepts a ciphertext only if Seal has returned it for the same
// secretName.
func FuzzOpen(f *testing.F) {
	b, err := seal.New(seal.Config{Keys: []string{key("new", 1), key("old", 2)}})
	if err != nil {
		f.Fatal(err)
	}
	// Seal uses a random nonce, and every fuzzing process must use the same ciphertext. Therefore
	// the ciphertext is a constant.
	sealed, err := base64.StdEncoding.DecodeString("A25ld4AZyf58VZwrT4csy6qqB75miFQsa0WFDzU613dlg5Db+f4=")
	if err != nil {
		f.Fatal(err)
	}
	for cut := range len(sealed) {
		f.Add(sealed[:cut], "about")
	}
	f.Add(sealed, "about")
	f.Add(sealed, "other")
	f.Add([]byte("\xffold"), "about")
	f.Add([]byte("\x03old123456789012"), "about")
	f.Fuzz(func(t *testing.T, text []byte, about string) {
		plain, err := b.Open(text, about)
		if want := bytes.Equal(text, sealed) && about == "about" && string(plain) == "secret"; err == nil && !want {
			t.Errorf("Open(%q, %q) = %q", text, about, plain)
		}
	})
}
