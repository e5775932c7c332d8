package sip

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/trunk"
)

// list is trunks, or an error.
type list struct {
	trunks []trunk.Trunk
	err    error
}

func (l *list) Active(context.Context) ([]trunk.Trunk, error) { return l.trunks, l.err }

func TestDoor_OnlyTrunksAreHeard(t *testing.T) {
	t.Parallel()
	literal, named := trunk.New(uuid.UUID{1}), trunk.New(uuid.UUID{2})
	literal.Name, literal.Host, literal.InboundSources = "literal", "192.0.2.1", []string{"198.51.100.0/24"}
	named.Name, named.Host = "named", "sip.example.net"
	known, fault := &list{trunks: []trunk.Trunk{literal, named}}, error(nil)
	d := NewDoor(known)
	d.lookup = func(context.Context, trunk.Trunk) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8::9")}, fault
	}
	who := func(source string) string {
		found, _ := d.Trunk(netip.MustParseAddr(source))
		return found.Name
	}
	if d.Admit(netip.MustParseAddr("192.0.2.1")) {
		t.Error("somebody is admitted before anything is known")
	}
	look := func() {
		t.Helper()
		if err := d.look(t.Context()); err != nil && known.err == nil {
			t.Fatal(err)
		}
	}
	look()
	for source, want := range map[string]string{
		"192.0.2.1": "literal", "::ffff:192.0.2.1": "literal", "198.51.100.77": "literal", "203.0.113.9": "named", "2001:db8::9": "named",
		"192.0.2.2": "", "203.0.113.10": "", "127.0.0.1": "", "::1": "",
	} {
		if got := who(source); got != want || d.Admit(netip.MustParseAddr(source)) != (want != "") {
			t.Errorf("%s is %q, want %q", source, got, want)
		}
	}
	known.err = errors.New("no database")
	look()
	if who("192.0.2.1") != "literal" {
		t.Error("an outage of the database locks the trunks out")
	}
	known.err, fault = nil, errors.New("no resolver")
	d.last[named.TrunkID] = resolved{host: named.Host, addresses: d.last[named.TrunkID].addresses} // long ago
	look()
	if who("203.0.113.9") != "named" {
		t.Error("an outage of the resolver locks a trunk out")
	}
	known.trunks = []trunk.Trunk{literal}
	look()
	if who("203.0.113.9") != "" {
		t.Error("a trunk that was removed is still heard")
	}
}
