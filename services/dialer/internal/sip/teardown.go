// Package teardown owns the few hundred bytes from which another process at the same address ends a SIP call that this one began: CANCEL while it rings, BYE
// when it was answered. They hold no secret. It is pure; package signal sends.

package sip

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// version is of the encoding; a state of another one is not read.
const version = 1

// Bounds of what is read: a state comes back from a store, but what is in it came from a carrier.
const (
	maxStateBytes = 16 << 10
	maxFieldBytes = 2 << 10
	maxRoutes     = 16
)

// TeardownState is one leg. The fields are header values as they stand on the wire.
type TeardownState struct {
	Version int    `json:"v"`
	CallID  string `json:"call_id"`
	// From and To are ours and theirs, with their tags; To has none while nobody answered.
	From string `json:"from"`
	To   string `json:"to"`
	// Contact is where we are reached.
	Contact string `json:"contact"`
	// URI is whom to ask: of the INVITE while nobody answered, then the far end's contact.
	URI string `json:"uri"`
	// Via is the INVITE's top one, with its branch; empty when the INVITE was theirs.
	Via string `json:"via,omitempty"`
	// CSeq is the number of our last request.
	CSeq uint32 `json:"cseq"`
	// Routes are the route set, or the INVITE's own while nobody answered.
	Routes []string `json:"routes,omitempty"`
	// Hop is where the next request goes, Transport how.
	Hop       string `json:"hop"`
	Transport string `json:"transport"`
	// Answered says that there is a dialog to end.
	Answered bool `json:"answered,omitempty"`
}

// Encode writes the state down.
func (s TeardownState) Encode() []byte {
	s.Version = version
	text, _ := json.Marshal(s) // strings and numbers only: it cannot fail
	return text
}

// ParseTeardown reads a state, and refuses one that could not have been written by Encode of a real leg.
func ParseTeardown(text []byte) (TeardownState, error) {
	var s TeardownState
	if len(text) > maxStateBytes {
		return s, fmt.Errorf("read teardown state: %d bytes", len(text))
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read teardown state: %w", err)
	}
	if s.Version != version {
		return s, fmt.Errorf("read teardown state: version %d is not %d", s.Version, version)
	}
	return s, s.check()
}

func (s TeardownState) check() error {
	for name, value := range map[string]string{"call_id": s.CallID, "from": s.From, "to": s.To, "uri": s.URI, "contact": s.Contact, "hop": s.Hop} {
		if value == "" {
			return fmt.Errorf("read teardown state: no %s", name)
		}
	}
	for _, value := range append([]string{s.CallID, s.From, s.To, s.URI, s.Contact, s.Hop, s.Via}, s.Routes...) {
		if len(value) > maxFieldBytes || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errors.New("read teardown state: a field is no header value")
		}
	}
	_, port, err := net.SplitHostPort(s.Hop)
	if err != nil {
		return fmt.Errorf("read teardown state: hop: %w", err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("read teardown state: hop %q has no port", s.Hop)
	}
	switch s.Transport {
	case "UDP", "TCP", "TLS":
	default:
		return fmt.Errorf("read teardown state: transport %q", s.Transport)
	}
	if len(s.Routes) > maxRoutes {
		return fmt.Errorf("read teardown state: %d routes", len(s.Routes))
	}
	if !s.Answered && s.Via == "" {
		return errors.New("read teardown state: it rings, and there is no Via to cancel it with")
	}
	return nil
}
