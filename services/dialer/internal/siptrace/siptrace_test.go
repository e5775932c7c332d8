package siptrace_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/siptrace"
)

func message(callID string, size int) siptrace.Message {
	return siptrace.Message{
		At: time.Date(2026, 6, 4, 9, 0, 0, 123456000, time.UTC), Transport: "UDP", CallID: callID,
		Local: netip.MustParseAddrPort("192.0.2.1:5060"), Peer: netip.MustParseAddrPort("192.0.2.2:5080"),
		Data: bytes.Repeat([]byte("a"), size),
	}
}

func TestRecorder_KeepsTheNewestMessages(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		size, added int
		want        int
	}{
		{name: "below both limits", size: 100, added: 3, want: 3},
		{name: "above the limit of messages", size: 10, added: siptrace.MaxMessages + 5, want: siptrace.MaxMessages},
		{name: "above the limit of bytes", size: 10_000, added: 200, want: siptrace.MaxBytes / 10_000},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var r siptrace.Recorder
			id := uuid.New()
			r.Follow([]uuid.UUID{id})
			for i := range row.added {
				m := message("old", row.size)
				if i == row.added-1 {
					m.CallID = "newest"
				}
				r.Record(id, m)
			}
			got := r.Messages(id, "")
			if len(got) != row.want {
				t.Fatalf("messages = %d, want %d", len(got), row.want)
			}
			if got, want := got[len(got)-1].CallID, "newest"; got != want {
				t.Errorf("Call-ID of the last message = %q, want %q", got, want)
			}
			if got := len(r.Messages(id, "newest")); got != 1 {
				t.Errorf("messages with the Call-ID = %d, want 1", got)
			}
		})
	}
}

// When a trunk is no longer passed to Follow, its recorded messages must be deleted.
func TestRecorder_RecordsOnlyTrunksPassedToFollow(t *testing.T) {
	t.Parallel()
	var r siptrace.Recorder
	followed, other := uuid.New(), uuid.New()
	if r.IsRecording() {
		t.Error("On = true before any trunk is followed, want false")
	}
	r.Follow([]uuid.UUID{followed})
	if !r.IsRecording() {
		t.Error("On = false while a trunk is followed, want true")
	}
	r.Record(followed, message("one", 1))
	r.Record(other, message("two", 1))
	r.Follow([]uuid.UUID{followed})
	if got := len(r.Messages(followed, "")); got != 1 {
		t.Errorf("messages of the followed trunk = %d, want 1", got)
	}
	if got := len(r.Messages(other, "")); got != 0 {
		t.Errorf("messages of the other trunk = %d, want 0", got)
	}
	r.Follow(nil)
	if r.IsRecording() {
		t.Error("On = true after the trace ended, want false")
	}
	if got := len(r.Messages(followed, "")); got != 0 {
		t.Errorf("messages after the trace ended = %d, want 0", got)
	}
}

func TestRedact_ReplacesSecrets(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, message, want string }{
		{
			name:    "digest",
			message: `Authorization: Digest username="a", response="deadbeef", uri="sip:x"`,
			want:    `Authorization: Digest username="a", response="xxxxxxxx", uri="sip:x"`,
		},
		{
			name:    "proxy digest, folded and without quotes",
			message: "Proxy-Authorization: Digest username=\"a\",\r\n Response = deadbeef,qop=auth\r\n",
			want:    "Proxy-Authorization: Digest username=\"a\",\r\n Response = xxxxxxxx,qop=auth\r\n",
		},
		{
			name:    "digest folded after the equals sign",
			message: "Authorization: Digest username=\"a\", response=\r\n \"deadbeef\", uri=\"sip:x\"\r\n",
			want:    "Authorization: Digest username=\"a\", response=\r\n \"xxxxxxxx\", uri=\"sip:x\"\r\n",
		},
		{
			name:    "digest folded before the equals sign",
			message: "Authorization: Digest username=\"a\", response\r\n\t= deadbeef\r\n",
			want:    "Authorization: Digest username=\"a\", response\r\n\t= xxxxxxxx\r\n",
		},
		{
			name:    "SDES key after a space",
			message: "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline: \tS2V5|2^20|1:4\r\n",
			want:    "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline: \txxxx|2^20|1:4\r\n",
		},
		{
			name:    "digest of the server (rspauth)",
			message: `Authentication-Info: rspauth="0123"`,
			want:    `Authentication-Info: rspauth="xxxx"`,
		},
		{
			name:    "Basic credentials",
			message: "Via: x\r\nAuthorization: Basic c2VjcmV0\r\n",
			want:    "Via: x\r\nAuthorization: Basic xxxxxxxx\r\n",
		},
		{
			name:    "two SDES keys",
			message: "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:S2V5+/==|2^20|1:4;inline:T3RoZXI=\r\n",
			want:    "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:xxxxxxxx|2^20|1:4;inline:xxxxxxxx\r\n",
		},
		{
			name:    "keys in k= and key-mgmt",
			message: "k=base64:S2V5\r\na=key-mgmt:mikey QUJD\r\na=sendrecv\r\n",
			want:    "k=xxxxxxxxxxx\r\na=key-mgmt:mikey xxxx\r\na=sendrecv\r\n",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			original := row.message
			if diff := cmp.Diff(row.want, string(siptrace.Redact([]byte(row.message)))); diff != "" {
				t.Errorf("redacted message (-want +got):\n%s", diff)
			}
			if row.message != original {
				t.Error("Redact changed the message, want a copy")
			}
		})
	}
}

type packet struct {
	At              time.Time
	Source, Target  netip.AddrPort
	Payload         string
	HeaderSum, Sums uint16 // checksums of the IP and UDP headers; 0 means correct
}

// decode shares no code with Pcap, so that it detects errors in Pcap.
func decode(t *testing.T, file []byte) (packets []packet) {
	t.Helper()
	if got, want := binary.LittleEndian.Uint32(file), uint32(0xa1b2c3d4); got != want {
		t.Fatalf("magic = %x, want %x", got, want)
	}
	if got, want := binary.LittleEndian.Uint32(file[20:]), uint32(101); got != want {
		t.Fatalf("link type = %d, want %d", got, want)
	}
	for rest := file[24:]; len(rest) > 0; {
		length := binary.LittleEndian.Uint32(rest[8:])
		micros := int64(binary.LittleEndian.Uint32(rest))*1e6 + int64(binary.LittleEndian.Uint32(rest[4:]))
		packets = append(packets, decodeIP(t, time.UnixMicro(micros).UTC(), rest[16:16+length]))
		rest = rest[16+length:]
	}
	return packets
}

func decodeIP(t *testing.T, at time.Time, ip []byte) packet {
	t.Helper()
	p := packet{At: at}
	var source, target netip.Addr
	var udp, pseudo []byte
	switch ip[0] >> 4 {
	case 4:
		if got := int(binary.BigEndian.Uint16(ip[2:])); got != len(ip) {
			t.Errorf("total length = %d, want %d", got, len(ip))
		}
		p.HeaderSum, udp, pseudo = onesSum(ip[:20]), ip[20:], bytes.Clone(ip[12:20])
		source, target = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
	case 6:
		if got := int(binary.BigEndian.Uint16(ip[4:])); got != len(ip)-40 {
			t.Errorf("payload length = %d, want %d", got, len(ip)-40)
		}
		udp, pseudo = ip[40:], bytes.Clone(ip[8:40])
		source, target = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	default:
		t.Fatalf("IP version = %d, want 4 or 6", ip[0]>>4)
	}
	p.Source = netip.AddrPortFrom(source, binary.BigEndian.Uint16(udp))
	p.Target = netip.AddrPortFrom(target, binary.BigEndian.Uint16(udp[2:]))
	if got := int(binary.BigEndian.Uint16(udp[4:])); got != len(udp) {
		t.Errorf("UDP length = %d, want %d", got, len(udp))
	}
	p.Payload = string(udp[8:])
	pseudo = append(pseudo, 0, 17, udp[4], udp[5])
	p.Sums = onesSum(append(pseudo, udp...))
	return p
}

// onesSum returns the Internet checksum. For data that contains its own correct checksum, it is 0.
func onesSum(data []byte) uint16 {
	if len(data)%2 == 1 {
		data = append(bytes.Clone(data), 0)
	}
	var sum uint64
	for i := 0; i < len(data); i += 2 {
		sum += uint64(data[i])<<8 | uint64(data[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum) //nolint:gosec // below 1<<16
}

func capture() ([]siptrace.Message, []packet) {
	four, six := message("4", 3), message("6", 4)
	four.Sent = true
	six.Transport = "TLS"
	six.Local, six.Peer = netip.MustParseAddrPort("[2001:db8::1]:5061"), netip.MustParseAddrPort("[2001:db8::2]:5061")
	return []siptrace.Message{four, six}, []packet{
		{At: four.At, Source: four.Local, Target: four.Peer, Payload: "aaa"},
		{At: six.At, Source: six.Peer, Target: six.Local, Payload: "aaaa"},
	}
}

func TestPcap_IsReadByADecoder(t *testing.T) {
	t.Parallel()
	messages, want := capture()
	got := decode(t, siptrace.Pcap(messages))
	byValue := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(want, got, byValue); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
}

func TestPcap_IsReadByTcpdump(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Skip("SKIPPED: tcpdump is not installed")
	}
	messages, _ := capture()
	command := exec.CommandContext(t.Context(), "tcpdump", "-nn", "-v", "-r", "-")
	command.Stdin = bytes.NewReader(siptrace.Pcap(messages))
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("tcpdump: %v: %s", err, output)
	}
	for _, want := range []string{"192.0.2.1.5060 > 192.0.2.2.5080", "2001:db8::2.5061 > 2001:db8::1.5061"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("tcpdump printed %q, want it to contain %q", output, want)
		}
	}
	if strings.Contains(string(output), "bad") {
		t.Errorf("tcpdump printed %q, want no bad checksum", output)
	}
}

func TestText_ListsTheMessages(t *testing.T) {
	t.Parallel()
	m := message("one", 0)
	m.Data, m.Replica = []byte("SIP/2.0 200 OK\r\n\r\n"), "dialer-0"
	want := "2026-06-04T09:00:00.123456Z received UDP 192.0.2.2:5080 -> 192.0.2.1:5060 at dialer-0\nSIP/2.0 200 OK\n\n\n"
	if diff := cmp.Diff(want, string(siptrace.Text([]siptrace.Message{m}))); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}
