package teardown_test

import (
	"bytes"
	"strings"
	"testing"

	"ringfence.dev/services/dialer/internal/signal/teardown"
)

func ringing() teardown.State {
	return teardown.State{
		Version: 1, CallID: "0190-a@127.0.0.1", From: `<sip:+15005550006@127.0.0.1>;tag=a`, To: `<sip:+14155550101@127.0.0.1>`,
		Contact: `<sip:127.0.0.1:5060>`, URI: "sip:+14155550101@127.0.0.1:5070", Via: "SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bK.1;rport", CSeq: 2,
		Routes: []string{"<sip:127.0.0.1:5080;lr>"}, Hop: "127.0.0.1:5080", Transport: "UDP",
	}
}

func TestState_IsReadBack(t *testing.T) {
	t.Parallel()
	want := ringing()
	text := want.Encode()
	if len(text) > 700 {
		t.Errorf("a state has %d bytes", len(text))
	}
	got, err := teardown.Parse(text)
	switch {
	case err != nil:
		t.Errorf("error = %v, want none", err)
	case !bytes.Equal(got.Encode(), text):
		t.Errorf("got.Encode() = %v, want %v", got.Encode(), text)
	case got.Routes[0] != want.Routes[0]:
		t.Errorf("got.Routes[0] = %v, want %v", got.Routes[0], want.Routes[0])
	case got.Via != want.Via:
		t.Errorf("got.Via = %v, want %v", got.Via, want.Via)
	case got.CSeq != 2:
		t.Errorf("got.CSeq = %v, want 2", got.CSeq)
	}
}

func TestParse_RefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*teardown.State){
		"no call id":             func(s *teardown.State) { s.CallID = "" },
		"a header in a header":   func(s *teardown.State) { s.From += "\r\nVia: x" },
		"no hop":                 func(s *teardown.State) { s.Hop = "127.0.0.1" },
		"a hop of port 0":        func(s *teardown.State) { s.Hop = "127.0.0.1:0" },
		"an unknown transport":   func(s *teardown.State) { s.Transport = "SCTP" },
		"nothing to cancel":      func(s *teardown.State) { s.Via = "" },
		"too many routes":        func(s *teardown.State) { s.Routes = make([]string, 17) },
		"a field without an end": func(s *teardown.State) { s.URI = strings.Repeat("a", 3000) },
	} {
		s := ringing()
		spoil(&s)
		if _, err := teardown.Parse(s.Encode()); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
	for _, text := range []string{"", "{}", "null", `{"v":2}`, "[1]"} {
		if _, err := teardown.Parse([]byte(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(ringing().Encode())
	f.Add([]byte(`{"v":1,"hop":"[::1]:5060"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := teardown.Parse(text)
		if err != nil {
			return
		}
		if again, err := teardown.Parse(s.Encode()); err != nil {
			t.Fatalf("%q: Parse: %v", text, err)
		} else if !bytes.Equal(again.Encode(), s.Encode()) {
			t.Fatalf("%q: again.Encode() = %q, want %q", text, again.Encode(), s.Encode())
		}
	})
}
