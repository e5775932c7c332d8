package sip_test

import (
	"bytes"
	"strings"
	"testing"

	"ringfence.dev/services/dialer/internal/sip"
)

func ringingState() sip.TeardownState {
	return sip.TeardownState{
		Version: 1, CallID: "0190-a@127.0.0.1", From: `<sip:+15005550006@127.0.0.1>;tag=a`, To: `<sip:+14155550101@127.0.0.1>`,
		Contact: `<sip:127.0.0.1:5060>`, URI: "sip:+14155550101@127.0.0.1:5070", Via: "SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bK.1;rport", CSeq: 2,
		Routes: []string{"<sip:127.0.0.1:5080;lr>"}, Hop: "127.0.0.1:5080", Transport: "UDP",
	}
}

func TestParseTeardown_ReturnsTheStateThatWasEncoded(t *testing.T) {
	t.Parallel()
	want := ringingState()
	text := want.Encode()
	if len(text) > 700 {
		t.Errorf("encoded state has %d bytes", len(text))
	}
	got, err := sip.ParseTeardown(text)
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

func TestParseTeardown_RejectsInvalidStates(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*sip.TeardownState){
		"no Call-ID":               func(s *sip.TeardownState) { s.CallID = "" },
		"header with a line break": func(s *sip.TeardownState) { s.From += "\r\nVia: x" },
		"hop without a port":       func(s *sip.TeardownState) { s.Hop = "127.0.0.1" },
		"hop with port 0":          func(s *sip.TeardownState) { s.Hop = "127.0.0.1:0" },
		"unknown transport":        func(s *sip.TeardownState) { s.Transport = "SCTP" },
		"ringing call without Via": func(s *sip.TeardownState) { s.Via = "" },
		"too many routes":          func(s *sip.TeardownState) { s.Routes = make([]string, 17) },
		"field that is too long":   func(s *sip.TeardownState) { s.URI = strings.Repeat("a", 3000) },
	} {
		s := ringingState()
		spoil(&s)
		if _, err := sip.ParseTeardown(s.Encode()); err == nil {
			t.Errorf("%s: ParseTeardown succeeded, want an error", name)
		}
	}
	for _, text := range []string{"", "{}", "null", `{"v":2}`, "[1]"} {
		if _, err := sip.ParseTeardown([]byte(text)); err == nil {
			t.Errorf("ParseTeardown(%q) succeeded, want an error", text)
		}
	}
}

func FuzzParseTeardown(f *testing.F) {
	f.Add(ringingState().Encode())
	f.Add([]byte(`{"v":1,"hop":"[::1]:5060"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := sip.ParseTeardown(text)
		if err != nil {
			return
		}
		if again, err := sip.ParseTeardown(s.Encode()); err != nil {
			t.Fatalf("%q: Parse: %v", text, err)
		} else if !bytes.Equal(again.Encode(), s.Encode()) {
			t.Fatalf("%q: again.Encode() = %q, want %q", text, again.Encode(), s.Encode())
		}
	})
}
