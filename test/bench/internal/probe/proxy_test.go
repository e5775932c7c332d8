package probe

import (
	"encoding/binary"
	"io"
	"maps"
	"net"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

// message returns a message of a client. The kind 0 means the startup message.
func message(kind byte, body string) []byte {
	var all []byte
	if kind != 0 {
		all = append(all, kind)
	}
	all = binary.BigEndian.AppendUint32(all, uint32(len(body)+4))
	return append(all, body...)
}

func startup(role string) []byte {
	return message(0, string(binary.BigEndian.AppendUint32(nil, protocol))+"user\x00"+role+"\x00database\x00x\x00\x00")
}

func through(t *testing.T, p *Proxy, server net.Listener, sent []byte) {
	t.Helper()
	client, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	behind, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close()
	if _, err := client.Write(sent); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(sent))
	_ = behind.SetReadDeadline(time.Now().Add(kit.HangTimeout))
	if _, err := io.ReadFull(behind, got); err != nil {
		t.Fatal(err)
	}
	if string(got) != string(sent) {
		t.Fatalf("the server received %q, want %q", got, sent)
	}
}

func TestProxy_CountsStatementsByRole(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p, err := Listen(server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var sent []byte
	for _, part := range [][]byte{
		message(0, string(binary.BigEndian.AppendUint32(nil, 80877103))), // a TLS request
		startup("app"),
		message('p', "secret\x00"),
		message('Q', "begin;\n LISTEN x ; \x00"),
		message('P', "one\x00SELECT\n  1\x00\x00\x00"), // this statement is prepared and not executed
		message('P', "two\x00SELECT 2\x00\x00\x00"),
		message('B', "\x00one\x00rest"), message('E', "\x00\x00\x00\x00\x00"), message('S', ""),
		message('B', "\x00one\x00rest"), message('E', "\x00\x00\x00\x00\x00"), message('S', ""),
		message('X', ""),
	} {
		sent = append(sent, part...)
	}
	through(t, p, server, sent)
	before := p.Of("other")
	through(t, p, server, append(startup("other"), message('Q', "-- ping\x00")...))

	want := Counts{"begin": 1, "LISTEN x": 1, "SELECT 1": 2}
	if err := kit.Until(t.Context(), kit.HangTimeout, "both roles' statements are counted", func() (bool, error) {
		return p.Of("app").Sum() >= want.Sum() && p.Of("other").Sum() > 0, nil
	}); err != nil {
		t.Fatal(err)
	}
	got := p.Of("app")
	for statement, times := range want {
		if got[statement] != times {
			t.Errorf("%q ran %d times, want %d", statement, got[statement], times)
		}
	}
	if got.Sum() != want.Sum() {
		t.Errorf("counted %v, want %v", got, want)
	}
	if since, want := p.Of("other").Less(before), (Counts{"-- ping": 1}); !maps.Equal(since, want) {
		t.Errorf("statements of the other role = %v, want %v", since, want)
	}
}
