package sdp_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ringfence.dev/services/dialer/internal/sdp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func key(first byte) (k sdp.Key) {
	for i := range k {
		k[i] = first + byte(i)
	}
	return k
}

const (
	theirKey = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVpbXF1e" // base64 of key('A')
	otherKey = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+" // base64 of key('a')
)

func local(change ...func(*sdp.Local)) sdp.Local {
	l := sdp.Local{Address: netip.MustParseAddr("198.51.100.7"), Port: 10000, Secrecy: sdp.Off, Key: key(0)}
	for _, c := range change {
		c(&l)
	}
	return l
}

func with(s sdp.Secrecy) func(*sdp.Local)    { return func(l *sdp.Local) { l.Secrecy = s } }
func codecs(c ...sdp.Codec) func(*sdp.Local) { return func(l *sdp.Local) { l.Codecs = c } }
func at(address string) func(*sdp.Local) {
	return func(l *sdp.Local) { l.Address = netip.MustParseAddr(address) }
}
func session(c ...func(*sdp.Local)) *sdp.Session { return sdp.NewSession(2468, local(c...)) }

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".sdp")
	lines := strings.ReplaceAll(string(got), "\r\n", "\n")
	if strings.Count(string(got), "\r\n") != strings.Count(lines, "\n") {
		t.Error("a line does not end in CRLF")
	}
	if *update {
		if err := os.WriteFile(file, []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("%s: os.ReadFile: %v", file, err)
	} else if string(want) != lines {
		t.Errorf("%s: want = %q, want %q", file, string(want), lines)
	}
}

func TestOffer_ContainsTheSettingsOfTheTrunk(t *testing.T) {
	for name, s := range map[string]*sdp.Session{
		"offer_plain":    session(),
		"offer_alaw_v6":  session(codecs(sdp.PCMA, sdp.PCMU), at("2001:db8::7")),
		"offer_optional": session(with(sdp.Optional)),
		"offer_required": session(with(sdp.Required), codecs(sdp.PCMA)),
	} {
		body, err := s.Offer(sdp.Both)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, body)
		if len(body) > 400 {
			t.Errorf("%s has %d bytes: an INVITE over UDP has room for 400", name, len(body))
		}
	}
}

func TestOffer_VersionIncreasesOnlyIfTheSDPChanges(t *testing.T) {
	s := session()
	version := func(body []byte, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		origin := strings.Split(string(body), "\r\n")[1]
		if !strings.HasPrefix(origin, "o=- 1234 ") {
			t.Fatalf("%s: the session's id changed", origin)
		}
		return strings.Fields(origin)[2]
	}
	offer := theirs("0", "").String()
	answer := func(offer string) ([]byte, error) {
		body, _, err := s.Answer([]byte(offer), sdp.Both)
		return body, err
	}
	for i, step := range []struct{ got, want string }{
		{version(s.Offer(sdp.Both)), "1"},
		{version(s.Offer(sdp.Both)), "1"},
		{version(s.Offer(sdp.SendOnly)), "2"},
		{version(s.Offer(sdp.Both)), "3"},
		{version(answer(offer)), "4"}, // the answer contains only one codec, so the SDP has changed
		{version(answer(offer)), "4"},
		// The far end's address is not part of the answer, so the answer does not change.
		{version(answer(strings.ReplaceAll(offer, "203.0.113.9", "203.0.113.10"))), "4"},
		{version(answer(strings.ReplaceAll(offer, "a=ptime", "a=sendonly\r\na=ptime"))), "5"},
	} {
		if step.got != step.want {
			t.Errorf("step %d: version %s, want %s", i, step.got, step.want)
		}
	}
}

type far struct{ session, media []string }

func (f far) String() string {
	return strings.Join(
		append(append([]string{"v=0", "o=FreeSWITCH 17 18 IN IP4 203.0.113.9", "s=call"}, f.session...), f.media...),
		"\r\n",
	) + "\r\n"
}

func theirs(formats, attributes string, session ...string) far {
	f := far{session: append([]string{"c=IN IP4 203.0.113.9", "t=0 0"}, session...)}
	f.media = []string{
		"m=audio 40000 RTP/AVP " + formats + " 96",
		"a=rtpmap:96 telephone-event/8000",
		"a=fmtp:96 0-15",
		"a=ptime:20",
	}
	if attributes != "" {
		f.media = append(f.media, strings.Split(attributes, "\n")...)
	}
	return f
}

func TestReadAnswer_AcceptsAUsableAnswerAndRefusesOthers(t *testing.T) {
	remote := netip.MustParseAddrPort("203.0.113.9:40000")
	plain := sdp.Agreed{Remote: remote, Codecs: []sdp.Codec{sdp.PCMU}, EventOut: 96, EventIn: 101, Direction: sdp.Both}
	changed := func(change func(*sdp.Agreed)) sdp.Agreed { a := plain; change(&a); return a }
	ours, their := key(0), key('A')
	crypto := "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:" + theirKey
	secure := func(answer string) string { return strings.ReplaceAll(answer, "RTP/AVP", "RTP/SAVP") }
	encrypted := changed(func(a *sdp.Agreed) { a.Out, a.In = &ours, &their })
	for _, row := range []struct {
		name   string
		local  sdp.Local
		answer string
		want   sdp.Agreed
		err    error
	}{
		{"sent events have the far end's payload type", local(), theirs("0", "").String(), plain, nil},
		{"codecs are in the far end's order", local(), theirs("8 0", "").String(),
			changed(func(a *sdp.Agreed) { a.Codecs = []sdp.Codec{sdp.PCMA, sdp.PCMU} }), nil},
		{"codec that the trunk does not have is ignored", local(codecs(sdp.PCMU)), theirs("8 0", "").String(), plain, nil},
		{"no usable codec", local(), theirs("18 9", "").String(), sdp.Agreed{}, sdp.ErrNoCodec},
		{"payload type 0 mapped to another codec", local(), theirs("0", "a=rtpmap:0 G729/8000").String(), sdp.Agreed{},
			sdp.ErrNoCodec},
		{"events with a static payload type are ignored", local(), strings.ReplaceAll(theirs("0", "").String(), "96", "18"),
			changed(func(a *sdp.Agreed) { a.EventOut, a.EventIn = 0, 0 }), nil},
		{"stream address overrides session address", local(), theirs("0", "c=IN IP4 203.0.113.77").String(),
			changed(func(a *sdp.Agreed) { a.Remote = netip.MustParseAddrPort("203.0.113.77:40000") }), nil},
		{"IPv6 address", local(), theirs("0", "c=IN IP6 2001:db8::9").String(),
			changed(func(a *sdp.Agreed) { a.Remote = netip.MustParseAddrPort("[2001:db8::9]:40000") }), nil},
		{"sendonly: this side only receives", local(), theirs("0", "a=sendonly").String(),
			changed(func(a *sdp.Agreed) { a.Direction = sdp.RecvOnly }), nil},
		{"recvonly: this side only sends", local(), theirs("0", "a=recvonly").String(),
			changed(func(a *sdp.Agreed) { a.Direction = sdp.SendOnly }), nil},
		{"direction of the session", local(), theirs("0", "", "a=inactive").String(),
			changed(func(a *sdp.Agreed) { a.Direction = sdp.Inactive }), nil},
		{"stream direction overrides session direction", local(), theirs("0", "a=sendrecv", "a=inactive").String(), plain,
			nil},
		{"0.0.0.0 holds the call", local(), theirs("0", "c=IN IP4 0.0.0.0").String(),
			changed(func(a *sdp.Agreed) { a.Remote, a.Direction = netip.AddrPort{}, sdp.RecvOnly }), nil},
		{"host name as address is refused", local(), theirs("0", "c=IN IP4 sbc.example.com").String(), sdp.Agreed{},
			sdp.ErrNoAddress},
		{"multicast address is refused", local(), theirs("0", "c=IN IP4 224.2.1.1/127").String(), sdp.Agreed{},
			sdp.ErrNoAddress},
		{"no address", local(), strings.ReplaceAll(theirs("0", "").String(), "c=IN IP4 203.0.113.9\r\n", ""), sdp.Agreed{},
			sdp.ErrNoAddress},
		{"port 0 refuses the audio", local(), strings.ReplaceAll(theirs("0", "").String(), "40000", "0"), sdp.Agreed{},
			sdp.ErrNoAudio},
		{"other order of lines, unknown lines, bare line feeds", local(),
			"v=0\no=x y\na=tool:z\ni=\nb=X:9\nt=0 0\nr=\nc=IN IP4 203.0.113.9\nm=audio 40000 RTP/AVP 0 " +
				"96\nb=RS:0\na=rtpmap:96 telephone-event/8000/1\nk=clear:x\nm=image 0 udptl t38\n", plain, nil},
		{"key in the answer is ignored with Off", local(), theirs("0", crypto).String(), plain, nil},
		{"Optional, answer has a key", local(with(sdp.Optional)), theirs("0", crypto).String(), encrypted, nil},
		{"Optional, answer has no key", local(with(sdp.Optional)), theirs("0", "").String(), plain, nil},
		{"Required, answer has a key", local(with(sdp.Required)), secure(theirs("0", crypto+"|2^31").String()), encrypted,
			nil},
		{"Required, answer has no key", local(with(sdp.Required)), secure(theirs("0", "").String()), sdp.Agreed{},
			sdp.ErrSecrecy},
		{"Required, answer is plain RTP", local(with(sdp.Required)), theirs("0", crypto).String(), sdp.Agreed{},
			sdp.ErrSecrecy},
		{"Off, answer is SRTP", local(), secure(theirs("0", crypto).String()), sdp.Agreed{}, sdp.ErrSecrecy},
		{"key with another tag", local(with(sdp.Required)),
			secure(theirs("0", strings.Replace(crypto, ":1 ", ":2 ", 1)).String()), sdp.Agreed{}, sdp.ErrSecrecy},
		{"key that is too short", local(with(sdp.Required)), secure(theirs("0", crypto[:len(crypto)-4]).String()),
			sdp.Agreed{}, sdp.ErrSecrecy},
		{"key with an MKI", local(with(sdp.Required)), secure(theirs("0", crypto+"|1:4").String()), sdp.Agreed{},
			sdp.ErrSecrecy},
		{"unencrypted SRTP", local(with(sdp.Required)), secure(theirs("0", crypto+" UNENCRYPTED_SRTP").String()), sdp.Agreed{}, sdp.ErrSecrecy},
		{"empty answer", local(), "", sdp.Agreed{}, sdp.ErrMalformed},
		{"answer that is too long", local(), theirs("0", "a=x:"+strings.Repeat("x", 16<<10)).String(), sdp.Agreed{},
			sdp.ErrMalformed},
		{"too many lines", local(), theirs("0", strings.Repeat("a=x\n", 600)+"a=x").String(), sdp.Agreed{}, sdp.ErrMalformed},
		{"too many streams", local(), theirs("0", strings.Repeat("m=audio 2 RTP/AVP 0\n", 20)+"a=x").String(), sdp.Agreed{}, sdp.ErrMalformed},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := sdp.NewSession(1, row.local).ReadAnswer([]byte(row.answer), sdp.Both)
			if !errors.Is(err, row.err) {
				t.Errorf("ReadAnswer = %v, want %v", err, row.err)
			} else if err == nil && !reflect.DeepEqual(got, row.want) {
				t.Errorf("got = %v, want %v", got, row.want)
			}
		})
	}
}

func TestReadAnswer_CallThatTheDialerPutOnHoldStaysOnHold(t *testing.T) {
	got, err := session().ReadAnswer([]byte(theirs("0", "").String()), sdp.SendOnly)
	if err != nil {
		t.Errorf("answered sendrecv to our sendonly: ReadAnswer: %v", err)
	} else if got.Direction != sdp.SendOnly {
		t.Errorf("answered sendrecv to our sendonly: got.Direction = %v, want %v", got.Direction, sdp.SendOnly)
	}
}

func TestAnswer_AcceptsAUsableOfferAndRefusesOthers(t *testing.T) {
	crypto := "a=crypto:3 F8_128_HMAC_SHA1_80 inline:" + otherKey + "\na=crypto:7 AES_CM_128_HMAC_SHA1_80 inline:" + theirKey
	several := far{
		session: []string{"c=IN IP4 203.0.113.9", "t=0 0"},
		media: []string{
			"m=video 5000 RTP/AVP 31 97",
			"a=rtpmap:97 H264/90000",
			"m=image 5002 udptl t38",
			"m=audio 0 RTP/AVP 0",
			"m=audio 40000 RTP/AVP 8 0 96",
			"a=rtpmap:96 telephone-event/8000",
			"a=sendonly",
			"m=audio 40002 RTP/AVP 0",
		},
	}
	both := theirs(
		"0",
		"",
	).String() + strings.Join(
		[]string{"m=audio 40008 RTP/SAVP 0", "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:" + theirKey},
		"\r\n",
	) + "\r\n"
	for _, row := range []struct {
		name   string
		local  sdp.Local
		offer  string
		remote string
		secure bool
		err    error
	}{
		{"answer_plain", local(), theirs("0", "").String(), "203.0.113.9:40000", false, nil},
		{"answer_hold", local(), theirs("0", "a=sendonly").String(), "203.0.113.9:40000", false, nil},
		{"answer_inactive", local(), theirs("0", "a=inactive").String(), "203.0.113.9:40000", false, nil},
		{"answer_hold_by_address", local(), theirs("0", "c=IN IP4 0.0.0.0").String(), "invalid AddrPort", false, nil},
		{"answer_several_streams", local(), several.String(), "203.0.113.9:40000", false, nil},
		{"answer_optional", local(with(sdp.Optional)), theirs("0", crypto).String(), "203.0.113.9:40000", true, nil},
		{"answer_off_ignores_a_key", local(), theirs("0", crypto).String(), "203.0.113.9:40000", false, nil},
		{"answer_required", local(with(sdp.Required)),
			strings.ReplaceAll(theirs("0", crypto).String(), "RTP/AVP", "RTP/SAVP"), "203.0.113.9:40000", true, nil},
		{"answer_required_accepts_the_srtp_stream", local(with(sdp.Required)), both, "203.0.113.9:40008", true, nil},
		{"Required, offer has no key", local(with(sdp.Required)), theirs("0", "").String(), "", false, sdp.ErrSecrecy},
		{"Off, offer is SRTP", local(),
			strings.ReplaceAll(theirs("0", crypto).String(), "RTP/AVP", "RTP/SAVP"), "", false, sdp.ErrSecrecy},
		{"no usable codec", local(), theirs("18", "").String(), "", false, sdp.ErrNoCodec},
		{"no usable audio stream", local(),
			far{session: several.session, media: several.media[:4]}.String(), "", false, sdp.ErrNoAudio},
	} {
		t.Run(row.name, func(t *testing.T) {
			body, agreed, err := sdp.NewSession(2468, row.local).Answer([]byte(row.offer), sdp.Both)
			if !errors.Is(err, row.err) {
				t.Fatalf("%v, want %v", err, row.err)
			}
			if err != nil {
				return
			}
			golden(t, row.name, body)
			switch {
			case agreed.Remote.String() != row.remote:
				t.Errorf("agreed.Remote.String() = %v, want %v", agreed.Remote.String(), row.remote)
			case (agreed.In != nil) != row.secure:
				t.Errorf("received media is encrypted = %v, want %v", (agreed.In != nil), row.secure)
			case (agreed.Out != nil) != row.secure:
				t.Errorf("sent media is encrypted = %v, want %v", (agreed.Out != nil), row.secure)
			}
			if row.secure && *agreed.In != key('A') {
				t.Error("the key is not that of the suite that was taken")
			}
		})
	}
}

func TestKey_FmtDoesNotPrintTheKey(t *testing.T) {
	k := key('A')
	for _, text := range []string{
		fmt.Sprint(k), fmt.Sprintf("%+v", sdp.Agreed{In: &k}), fmt.Sprintf("%#v", k), fmt.Sprintf("%v", &k),
	} {
		if strings.Contains(text, "65") {
			t.Errorf(`text = %q, want it without "65"`, text)
		} else if strings.Contains(text, "ABC") {
			t.Errorf(`text = %q, want it without "ABC"`, text)
		}
	}
}
