package media

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"runtime"
	"testing"

	"github.com/pion/rtp"

	"ringfence.dev/services/dialer/internal/sdp"
)

func pair(t testing.TB) (*Encrypter, *Decrypter) {
	t.Helper()
	out, err := NewEncrypter(sdp.Key{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	in, err := NewDecrypter(sdp.Key{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	return out, in
}

func rtpPacket(ssrc uint32, number uint16, payload []byte) []byte {
	p := rtp.Packet{
		Header:  rtp.Header{Version: 2, SSRC: ssrc, SequenceNumber: number, Timestamp: uint32(number) * 160},
		Payload: payload,
	}
	raw, err := p.Marshal()
	if err != nil {
		panic(err)
	}
	return append(make([]byte, 0, 1500), raw...)
}

func seal(t testing.TB, out *Encrypter, ssrc uint32, number uint16) []byte {
	t.Helper()
	sealed, err := out.Seal(rtpPacket(ssrc, number, []byte("hello, this is a voice")))
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// RFC 3711 B.3 contains the session keys that belong to this master key. With these keys, the test
// computes the expected packet by RFC 3711 sections 4.1.1 and 4.2.
func TestSeal_EncryptsAsInRFC3711(t *testing.T) {
	bytesOf := func(text string) []byte {
		raw, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	out, err := NewEncrypter(sdp.Key(bytesOf("E1F97A0D3E018BE0D64FA32C06DE4139" + "0EC675AD498AFEEBB6960B3AABE6")))
	if err != nil {
		t.Fatal(err)
	}
	const ssrc, number = 0xCAFEBABE, 0x1234
	plain := rtpPacket(ssrc, number, bytes.Repeat([]byte{0xAB}, 160))
	iv := append(bytesOf("30CBBC08863D8C85D49DB34A9AE1"), 0, 0)
	for i, b := range rtpPacket(ssrc, number, nil)[8:12] {
		iv[4+i] ^= b
	}
	iv[12], iv[13] = iv[12]^number>>8, iv[13]^number&0xFF
	block, err := aes.NewCipher(bytesOf("C61E7A93744F39EE10734AFE3FF7A087"))
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(plain)
	cipher.NewCTR(block, iv).XORKeyStream(want[12:], plain[12:])
	tag := hmac.New(sha1.New, bytesOf("CEBE321F6FF7716B6FD4AB49AF256A156D38BAA4"))
	tag.Write(append(bytes.Clone(want), 0, 0, 0, 0))
	want = append(want, tag.Sum(nil)[:10]...)
	if sealed, err := out.Seal(plain); err != nil {
		t.Errorf("Seal: %v", err)
	} else if !bytes.Equal(sealed, want) {
		t.Errorf("Seal: sealed = %q, want %q", sealed, want)
	}
}

func TestOpen_AcceptsOnlyNewAuthenticPackets(t *testing.T) {
	out, in := pair(t)
	for n := range uint16(300) {
		number := 65400 + n // the sequence numbers wrap
		opened, err := in.Open(seal(t, out, 9, number), 9)
		if err != nil {
			t.Fatalf("packet %d: Open: %v", number, err)
		}
		if !bytes.HasSuffix(opened, []byte("a voice")) {
			t.Fatalf("packet %d: opened = %q, want it to end with %q", number, opened, []byte("a voice"))
		}
	}
	replayed := seal(t, out, 9, 200)
	if _, err := in.Open(bytes.Clone(replayed), 9); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Open(replayed, 9); !errors.Is(err, ErrReplayed) {
		t.Errorf("the same again: %v", err)
	}
	forged := seal(t, out, 9, 201)
	forged[20] ^= 1
	if _, err := in.Open(forged, 9); !errors.Is(err, ErrForged) {
		t.Errorf("a changed packet: %v", err)
	}
	if _, err := in.Open(rtpPacket(9, 202, []byte("plain text, no tag at all")), 9); !errors.Is(err, ErrForged) {
		t.Errorf("a plain packet: %v", err)
	}
	if opened, err := in.Open(seal(t, out, 10, 5), 10); err != nil {
		t.Errorf("another source with the key: Open: %v", err)
	} else if !bytes.HasSuffix(opened, []byte("a voice")) {
		t.Errorf("another source with the key: opened = %q, want it to end with %q", opened, []byte("a voice"))
	}
	switch {
	case !in.Uses(sdp.Key{1, 2, 3}):
		t.Error("in.Uses(sdp.Key{1, 2, 3}) = false, want true")
	case in.Uses(sdp.Key{1}):
		t.Error("in.Uses(sdp.Key{1}) = true, want false")
	case !out.Uses(sdp.Key{1, 2, 3}):
		t.Error("out.Uses(sdp.Key{1, 2, 3}) = false, want true")
	}
}

func TestOpen_KeepsNoStateForTheSSRCsOfForgedPackets(t *testing.T) {
	_, in := pair(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for ssrc := range uint32(50_000) {
		if _, err := in.Open(rtpPacket(ssrc, 1, []byte("not a tag at all")), ssrc); !errors.Is(err, ErrForged) {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("memory after 50,000 forged sources = %d bytes", grown)
	}
	if len(in.sources) != 0 {
		t.Errorf("sources = %d", len(in.sources))
	}
}

func TestOpen_LimitsTheNumberOfSSRCs(t *testing.T) {
	out, in := pair(t)
	opened := 0
	for ssrc := range uint32(20) {
		if _, err := in.Open(seal(t, out, ssrc, 1), ssrc); err == nil {
			opened++
		}
	}
	if opened != maxSources {
		t.Errorf("accepted sources = %d, want %d", opened, maxSources)
	}
}

func TestSealAndOpen_AllocateAtMostEightTimes(t *testing.T) {
	out, in := pair(t)
	buffer, number := rtpPacket(3, 0, make([]byte, 160)), uint16(0)
	allocated := testing.AllocsPerRun(1000, func() {
		number++
		buffer = buffer[:172]
		buffer[2], buffer[3] = byte(number>>8), byte(number)
		sealed, err := out.Seal(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Open(sealed, 3); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%v allocations a packet sealed and opened", allocated)
	// pion allocates memory five times, for tags and the replay window. The race detector sometimes
	// empties pion's pool, which causes more allocations.
	if allocated > 8 {
		t.Errorf("%v allocations", allocated)
	}
}

func FuzzOpen(f *testing.F) {
	out, _ := pair(f)
	f.Add(seal(f, out, 3, 4))
	f.Add([]byte{0x9F, 0, 0, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, in := pair(t)
		if opened, err := in.Open(bytes.Clone(raw), 3); err == nil && len(opened) > len(raw) {
			t.Errorf("%d bytes became %d bytes", len(raw), len(opened))
		}
	})
}
