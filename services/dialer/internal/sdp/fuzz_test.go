package sdp_test

import (
	"os"
	"path/filepath"
	"testing"

	"ringfence.dev/services/dialer/internal/sdp"
)

// ReadAnswer and Answer must not panic. If they accept a text, the result must be usable. Each
// answer that Answer writes must be readable as an offer.
func FuzzReadAnswerAndAnswer(f *testing.F) {
	files, err := filepath.Glob("testdata/*.sdp")
	if err != nil {
		f.Fatalf("Glob: %v", err)
	}
	if len(files) == 0 {
		f.Fatal("length of files = 0, want more")
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(theirs("0", "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:"+theirKey+"|2^20|1:4\na=sendonly").String()))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, secrecy := range []sdp.Secrecy{sdp.Off, sdp.Optional, sdp.Required} {
			if agreed, err := session(with(secrecy)).ReadAnswer(body, sdp.Both); err == nil {
				sound(t, secrecy, agreed)
			}
			answer, agreed, err := session(with(secrecy)).Answer(body, sdp.Both)
			if err != nil {
				continue
			}
			sound(t, secrecy, agreed)
			if len(answer) > len(body)+2048 {
				t.Errorf("%d bytes are answered with %d", len(body), len(answer))
			}
			if _, _, err := session(with(secrecy)).Answer(answer, sdp.Both); err != nil {
				t.Errorf("our answer is none that we would take: %v\n%s", err, answer)
			}
		}
	})
}

func sound(t *testing.T, secrecy sdp.Secrecy, a sdp.Agreed) {
	t.Helper()
	switch {
	case len(a.Codecs) == 0:
		t.Error("length of a.Codecs = 0, want another value")
	case len(a.Codecs) > 2:
		t.Errorf("length of a.Codecs = %v, want at most 2", len(a.Codecs))
	case a.Remote.IsValid() && a.Remote.Port() == 0:
		t.Errorf("a.Remote = %v, want a port", a.Remote)
	case a.Remote.Addr().IsMulticast():
		t.Errorf("a.Remote = %v, want no multicast address", a.Remote)
	case a.Remote.Addr().IsUnspecified():
		t.Errorf("a.Remote = %v, want a specified address", a.Remote)
	}
	if !a.Remote.IsValid() && a.Direction.Sends() {
		t.Errorf("agreed to send to nowhere: %+v", a)
	}
	switch {
	case (a.In == nil) != (a.Out == nil):
		t.Errorf("%s: the key of received media is absent = %v, want %v", secrecy, (a.In == nil), (a.Out == nil))
	case secrecy == sdp.Off && a.In != nil:
		t.Errorf("%s: media is encrypted, want it in clear", secrecy)
	case secrecy == sdp.Required && a.In == nil:
		t.Errorf("%s: media is in clear, want it encrypted", secrecy)
	}
	if a.EventOut != 0 && a.EventOut < 96 || a.EventOut > 127 {
		t.Errorf("events under %d", a.EventOut)
	}
}
