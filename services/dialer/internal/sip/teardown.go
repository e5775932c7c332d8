package sip

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// stateVersion is the version of the encoding. ParseTeardown rejects any other version.
const stateVersion = 1

// These constants limit a state that ParseTeardown accepts, because the peer chose most of its
// content.
const (
	maxStateBytes = 16 << 10
	maxFieldBytes = 2 << 10
	maxRoutes     = 16
)

// TeardownState is the data with which another process at the same address ends a leg (ADR 15). It
// contains no secret. Its text fields are header values.
type TeardownState struct {
	Version int    `json:"v"`
	CallID  string `json:"call_id"`
	// From is the local address and To the remote address, both with their tags. Before the answer, To
	// has no tag.
	From string `json:"from"`
	To   string `json:"to"`
	// Contact is this side's Contact.
	Contact string `json:"contact"`
	// URI is the request URI. Before the answer it is the URI of the INVITE, afterwards the peer's
	// Contact.
	URI string `json:"uri"`
	// Via is the first Via of the INVITE, with its branch. Via is empty for an inbound call.
	Via string `json:"via,omitempty"`
	// CSeq is the number of this side's last request.
	CSeq uint32 `json:"cseq"`
	// Routes is the route set. Before the answer it contains the Route headers of the INVITE.
	Routes []string `json:"routes,omitempty"`
	// Hop is the destination of the next request, as host:port.
	Hop       string `json:"hop"`
	Transport string `json:"transport"`
	// Answered is true if the dialog is established. It must then be ended with a BYE.
	Answered bool `json:"answered,omitempty"`
}

// Encode returns the state as JSON.
func (s TeardownState) Encode() []byte {
	s.Version = stateVersion
	text, _ := json.Marshal(s) // cannot fail: the fields are strings and numbers
	return text
}

// ParseTeardown reads a state. It returns an error for a state that Encode cannot have written for
// a real leg.
func ParseTeardown(text []byte) (TeardownState, error) {
	var s TeardownState
	if len(text) > maxStateBytes {
		return s, fmt.Errorf("read teardown state: %d bytes are too many", len(text))
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read teardown state: %w", err)
	}
	if s.Version != stateVersion {
		return s, fmt.Errorf("read teardown state: version %d is not %d", s.Version, stateVersion)
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
			return errors.New("read teardown state: invalid header value")
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
		return fmt.Errorf("read teardown state: invalid transport %q", s.Transport)
	}
	if len(s.Routes) > maxRoutes {
		return fmt.Errorf("read teardown state: %d routes are too many", len(s.Routes))
	}
	if !s.Answered && s.Via == "" {
		return errors.New("read teardown state: no Via")
	}
	return nil
}
