// Package trunks defines the settings of a SIP trunk: its address, credentials, audio, number
// format and limits. The package opens no connection and stores nothing.
package trunks

import (
	"net/netip"
	"strings"

	"github.com/google/uuid"
)

// Transport is the transport of SIP messages to the trunk.
type Transport string

// Values of Transport.
const (
	UDP Transport = "udp"
	TCP Transport = "tcp"
	TLS Transport = "tls"
)

// SRTP is the trunk's setting for the encryption of audio (SDES, RFC 4568).
type SRTP string

// Values of SRTP. With SRTPOptional, this side offers plain RTP with a key, and accepts plain RTP
// and SRTP.
const (
	SRTPOff      SRTP = "off"
	SRTPOptional SRTP = "optional"
	SRTPRequired SRTP = "required"
)

// NumberFormat is the format in which the trunk sends and expects phone numbers.
type NumberFormat string

// Values of NumberFormat. The formats are +14155550100, 14155550100, and the trunk's prefix
// followed by the digits without a plus.
const (
	Plus   NumberFormat = "plus"
	Digits NumberFormat = "digits"
	Prefix NumberFormat = "prefix"
)

// CallerIDHeader is the header in which the trunk expects the number of the caller.
type CallerIDHeader string

// Values of CallerIDHeader: only From, or also P-Asserted-Identity (RFC 3325).
const (
	InFrom     CallerIDHeader = "from"
	InAsserted CallerIDHeader = "p_asserted_identity"
)

// Status is the status of a trunk.
type Status string

// A disabled trunk places and accepts no new calls. Its live calls continue.
const (
	Active   Status = "active"
	Disabled Status = "disabled"
)

// Supported codecs, by their SDP names in lower case.
const (
	PCMU = "pcmu"
	PCMA = "pcma"
)

// Trunk is one SIP trunk, with the operator's settings.
type Trunk struct {
	TrunkID uuid.UUID
	// Version is the number of changes of the trunk, including its creation.
	Version int64
	Name    string
	Status  Status

	Host      string
	Port      uint16
	Transport Transport
	// OutboundProxy is the host or host:port to which all SIP requests are sent. If empty, they are
	// sent to the trunk's host.
	OutboundProxy string
	// CACertificates contains the certificates that are trusted for this trunk, in PEM. If empty, the
	// system's certificates are trusted.
	CACertificates string

	Username string
	// Password is the plain password. Sealed is the encrypted password, as it is stored. The API
	// returns neither. If Sealed is set and Password is empty, the key with which the password was
	// encrypted is no longer configured.
	Password string
	Sealed   []byte
	// Register is true if the dialer registers its address at the trunk, which then sends inbound
	// calls to this address.
	Register bool

	CallerIDs      []string
	CallerIDHeader CallerIDHeader
	NumberFormat   NumberFormat
	NumberPrefix   string

	Codecs []string
	SRTP   SRTP
	// SessionSeconds is the session interval that this side requests (RFC 4028). 0 means that it
	// requests none.
	SessionSeconds int32
	// MediaTimeoutSeconds is how long a call may continue without received RTP or RTCP. 0 means that
	// there is no limit.
	MediaTimeoutSeconds int32

	Channels       int32
	CallsPerSecond int32
	// Priority determines the order of trunks: a trunk with a smaller number is tried first.
	Priority int32
	// Trace is true if the SIP messages of the trunk are recorded in memory.
	Trace bool
	// InboundSources contains addresses and networks from which the trunk sends calls, in addition to
	// its host.
	InboundSources []string
}

// New returns a trunk with default settings, but without a name and a host.
func New(id uuid.UUID) Trunk {
	return Trunk{
		TrunkID: id, Status: Active, Transport: UDP, CallerIDHeader: InFrom, NumberFormat: Plus, Codecs: []string{PCMU, PCMA}, SRTP: SRTPOff,
		SessionSeconds: defaultSessionSeconds, MediaTimeoutSeconds: defaultMediaTimeoutSeconds,
		Channels: defaultChannels, CallsPerSecond: defaultCallsPerSecond, Priority: defaultPriority,
		CallerIDs: []string{}, InboundSources: []string{},
	}
}

// Address returns the first destination of SIP requests: the outbound proxy or, if there is none,
// the host.
func (t Trunk) Address() (host string, port uint16) {
	if t.OutboundProxy != "" {
		return splitAddress(t.OutboundProxy, t.Transport)
	}
	return t.Host, t.SIPPort()
}

// SIPPort returns the port of the host. If it is not set, SIPPort returns 5061 for TLS and 5060 for
// other transports (RFC 3261 section 19.1.2).
func (t Trunk) SIPPort() uint16 {
	switch {
	case t.Port != 0:
		return t.Port
	case t.Transport == TLS:
		return 5061
	}
	return 5060
}

// Write converts an E.164 number to the trunk's number format.
func (t Trunk) Write(e164 string) string {
	switch t.NumberFormat {
	case Digits:
		return strings.TrimPrefix(e164, "+")
	case Prefix:
		return t.NumberPrefix + strings.TrimPrefix(e164, "+")
	}
	return e164
}

// Read converts a number in the trunk's number format to E.164. It also accepts a number with a
// plus. ok is false if the text is not a number.
func (t Trunk) Read(user string) (e164 string, ok bool) {
	user, _, _ = strings.Cut(user, ";") // remove the parameters of the user part (RFC 3966)
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

// CallerID returns the caller number of a call over this trunk: wantedNumber if the trunk may send
// it, otherwise the first number of CallerIDs.
func (t Trunk) CallerID(wantedNumber string) string {
	if len(t.CallerIDs) == 0 {
		return wantedNumber
	}
	for _, may := range t.CallerIDs {
		if may == wantedNumber {
			return wantedNumber
		}
	}
	return t.CallerIDs[0]
}

// Admits reports whether an address is the host of the trunk or belongs to InboundSources. If the
// host is a name, its addresses are not compared, because Admits does no DNS lookup.
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
