// Package trunk owns what a SIP trunk is to the dialer: where it is reached, how we prove there who we are, what audio it takes, how it writes numbers and
// how much it carries. It opens no connection and stores nothing.
package trunk

import (
	"net/netip"
	"strings"

	"github.com/google/uuid"
)

// Transport is how SIP travels to the trunk.
type Transport string

// Transports.
const (
	UDP Transport = "udp"
	TCP Transport = "tcp"
	TLS Transport = "tls"
)

// SRTP says whether audio is encrypted (SDES, RFC 4568).
type SRTP string

// SRTP modes. Optional offers a key with plain RTP and takes either.
const (
	SRTPOff      SRTP = "off"
	SRTPOptional SRTP = "optional"
	SRTPRequired SRTP = "required"
)

// NumberFormat is how the trunk writes telephone numbers.
type NumberFormat string

// Number formats: +14155550100, 14155550100, or the trunk's prefix before the bare digits.
const (
	Plus   NumberFormat = "plus"
	Digits NumberFormat = "digits"
	Prefix NumberFormat = "prefix"
)

// CallerIDHeader is where the trunk looks for the number that calls.
type CallerIDHeader string

// Caller id headers: From alone, or P-Asserted-Identity (RFC 3325) beside it.
const (
	InFrom     CallerIDHeader = "from"
	InAsserted CallerIDHeader = "p_asserted_identity"
)

// Status of a trunk.
type Status string

// Statuses. A disabled trunk places and takes no new calls; those that live go on.
const (
	Active   Status = "active"
	Disabled Status = "disabled"
)

// Codecs, by their SDP names in small letters.
const (
	PCMU = "pcmu"
	PCMA = "pcma"
)

// Trunk is one SIP trunk as the operator set it up.
type Trunk struct {
	TrunkID uuid.UUID
	// Version counts the changes, from 1.
	Version int64
	Name    string
	Status  Status

	Host      string
	Port      uint16
	Transport Transport
	// OutboundProxy is host or host:port through which everything goes; empty: straight to the host.
	OutboundProxy string
	// CACertificates are PEM; empty: the system's.
	CACertificates string

	Username string
	// Password is plain here and Sealed at rest; it is never shown. A sealed one without a plain one lies under a key that is not configured.
	Password string
	Sealed   []byte
	// Register says that the trunk sends calls to where we register.
	Register bool

	CallerIDs      []string
	CallerIDHeader CallerIDHeader
	NumberFormat   NumberFormat
	NumberPrefix   string

	Codecs []string
	SRTP   SRTP
	// SessionSeconds is the session timer we ask for (RFC 4028); 0: none.
	SessionSeconds int32
	// MediaTimeoutSeconds is how long neither RTP nor RTCP may arrive in a call; 0: there is no limit.
	MediaTimeoutSeconds int32

	Channels       int32
	CallsPerSecond int32
	// Priority: the smaller number is tried first.
	Priority int32
	// Trace records the SIP messages of the trunk in memory.
	Trace bool
	// InboundSources are those besides the host that may call us, as addresses or networks.
	InboundSources []string
}

// New is a trunk of default settings, which lacks a name and a host.
func New(id uuid.UUID) Trunk {
	return Trunk{
		TrunkID: id, Status: Active, Transport: UDP, CallerIDHeader: InFrom, NumberFormat: Plus, Codecs: []string{PCMU, PCMA}, SRTP: SRTPOff,
		SessionSeconds: defaultSessionSeconds, MediaTimeoutSeconds: defaultMediaTimeoutSeconds,
		Channels: defaultChannels, CallsPerSecond: defaultCallsPerSecond, Priority: defaultPriority,
		CallerIDs: []string{}, InboundSources: []string{},
	}
}

// Address is where requests go first: the outbound proxy, or the host.
func (t Trunk) Address() (host string, port uint16) {
	if t.OutboundProxy != "" {
		return splitAddress(t.OutboundProxy, t.Transport)
	}
	return t.Host, t.SIPPort()
}

// SIPPort is the port of the host: 5061 for TLS and 5060 else, unless set (RFC 3261 section 19.1.2).
func (t Trunk) SIPPort() uint16 {
	switch {
	case t.Port != 0:
		return t.Port
	case t.Transport == TLS:
		return 5061
	}
	return 5060
}

// Write puts an E.164 number as the trunk wants it.
func (t Trunk) Write(e164 string) string {
	switch t.NumberFormat {
	case Digits:
		return strings.TrimPrefix(e164, "+")
	case Prefix:
		return t.NumberPrefix + strings.TrimPrefix(e164, "+")
	}
	return e164
}

// Read takes a number as the trunk writes it, in this trunk's way or with a plus; ok is false when it is none.
func (t Trunk) Read(user string) (e164 string, ok bool) {
	user, _, _ = strings.Cut(user, ";") // tel parameters (RFC 3966) ride in the user part
	digits, plus := strings.CutPrefix(user, "+")
	if !plus && t.NumberFormat == Prefix {
		var found bool
		if digits, found = strings.CutPrefix(user, t.NumberPrefix); !found {
			return "", false
		}
	}
	if len(digits) < 7 || len(digits) > 15 || digits[0] == '0' || strings.Trim(digits, "0123456789") != "" {
		return "", false
	}
	return "+" + digits, true
}

// CallerID is the number we call from over this trunk: the one wanted when the trunk may show it, else the first that it may.
func (t Trunk) CallerID(wanted string) string {
	if len(t.CallerIDs) == 0 {
		return wanted
	}
	for _, may := range t.CallerIDs {
		if may == wanted {
			return wanted
		}
	}
	return t.CallerIDs[0]
}

// Admits says whether an address is one of those that the operator named as the trunk's. The host's own are for whoever can look names up.
func (t Trunk) Admits(source netip.Addr) bool {
	source = source.Unmap()
	for _, text := range append([]string{t.Host}, t.InboundSources...) {
		if network, ok := parseNetwork(text); ok && network.Contains(source) {
			return true
		}
	}
	return false
}

// parseNetwork reads an address or a network in CIDR form.
func parseNetwork(text string) (netip.Prefix, bool) {
	if network, err := netip.ParsePrefix(text); err == nil {
		return network.Masked(), network.Masked() == network
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, false
	}
	addr = addr.Unmap()
	return netip.PrefixFrom(addr, addr.BitLen()), true
}
