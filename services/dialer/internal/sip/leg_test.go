package sip

import (
	"strings"
	"testing"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/callstate"
)

// restoreLeg must not panic for any state. A peer must not be able to inject a header, so each
// header of a restored request must be a single line.
func FuzzRestoreLeg(f *testing.F) {
	f.Add(TeardownState{
		CallID: "c", From: "<sip:a@127.0.0.1>;tag=1", To: "<sip:b@127.0.0.1>", Contact: "sip:127.0.0.1:5060", URI: "sip:b@127.0.0.1:5070",
		Via: "SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bK.1;rport", CSeq: 2, Routes: []string{"<sip:127.0.0.1:5080;lr>"}, Hop: "127.0.0.1:5080", Transport: "UDP",
	}.Encode())
	f.Add(TeardownState{
		CallID: "c", From: `"A" <sip:a@b>;tag=1`, To: "<sip:b@b>;tag=2", Contact: "sip:b", URI: "sip:b@[::1]:5070;transport=tcp", Hop: "h:1", Transport: "TCP", Answered: true,
		Routes: []string{"<sip:strict>"},
	}.Encode())
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseTeardown(text)
		if err != nil {
			return
		}
		us, invite, err := restoreLeg(s)
		if err != nil {
			return
		}
		all := []*sip.Request{us.newBye(callstate.NormalClearing), us.newAck(invite, 1)}
		if invite != nil {
			all = append(all, newCancel(invite, callstate.NoAnswer),
				newRefusalAck(invite, sip.NewResponseFromRequest(invite, 487, "x", nil)))
		}
		for _, req := range all {
			for i, line := range strings.Split(req.String(), "\r\n") {
				if i > 0 && line != "" && !strings.Contains(line, ":") {
					t.Errorf(`line = %q, want it to contain ":"; req = %s`, line, req)
				} else if strings.ContainsAny(line, "\r\n") {
					t.Errorf("line = %q, want it without \"\\r\\n\"; req = %s", line, req)
				}
			}
		}
		_ = us.requestRoute()
		if again, err := ParseTeardown(us.encodeState(invite)); err == nil && again.CallID != s.CallID {
			t.Errorf("state after Encode and ParseTeardown = %+v", again)
		}
	})
}

// A peer chooses the caller's number and the called number. So they can contain any text.
func FuzzNumbersOfInvite(f *testing.F) {
	f.Add("<sip:+1@a>;tag=1", `"X" <tel:+15005550006;x=y>`, "none", "+1500;npdi")
	f.Add("<sip:anonymous@anonymous.invalid>;tag=1", "", "id", "x")
	f.Fuzz(func(t *testing.T, from, asserted, privacy, user string) {
		req := sip.NewRequest(sip.INVITE, sip.Uri{Scheme: "sip", User: user, Host: "a"})
		var header sip.FromHeader
		if _, err := sip.ParseAddressValue(from, &header.Address, &header.Params); err != nil {
			return
		}
		req.AppendHeader(&header)
		req.AppendHeader(sip.NewHeader("P-Asserted-Identity", asserted))
		req.AppendHeader(sip.NewHeader("Privacy", privacy))
		for _, got := range []string{callerNumber(req), numberOf(&req.Recipient)} {
			if len(got) > maxNumberLength {
				t.Errorf("length of got = %d, want at most %d", len(got), maxNumberLength)
			} else if strings.ContainsAny(got, "; \r\n\x00") {
				t.Errorf("got = %q, want it without \"; \\r\\n\\x00\"", got)
			}
		}
	})
}
