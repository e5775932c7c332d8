package sipcarrier

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/dialer/internal/replicas"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/trunks"
)

const (
	// maxRejected is the maximum number of refused calls and connections that RejectedCalls keeps.
	maxRejected = 20
	// maxTextLength is the maximum length of each text of a refused call, in characters.
	maxTextLength = 64
)

// RejectedCalls keeps the last refused inbound calls and connections, and counts all refused ones.
// A call is refused because of its called number or its source address. RejectedCalls is safe for
// concurrent use. A nil RejectedCalls keeps nothing.
type RejectedCalls struct {
	counted *prometheus.CounterVec

	mu   sync.Mutex
	last []rejectedCall // newest last
}

// rejectedCall is a refused call or connection, with the values that identify its repetitions.
type rejectedCall struct {
	replicas.RejectedCall
	address netip.Addr
	callID  string
}

// NewRejectedCalls returns an empty list.
func NewRejectedCalls() *RejectedCalls {
	s := &RejectedCalls{counted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_dialer_sip_rejected_sources_total",
		Help: "Inbound SIP calls and connections that were refused because of their address or number, by reason.",
	}, []string{"reason"})}
	for _, reason := range []replicas.Reason{replicas.UnknownSource, replicas.UnknownNumber, replicas.UnassignedNumber} {
		s.counted.WithLabelValues(string(reason))
	}
	return s
}

// AddUnknown adds a call or connection from an address that belongs to no trunk.
func (s *RejectedCalls) AddUnknown(from transport.Rejected) {
	s.add(from, replicas.UnknownSource, fmt.Sprintf(
		"If this is a trunk of yours, add %s to its inbound_sources.", from.Source.Addr()))
}

// addUnreadable adds a call if the called number does not match the trunk's number format.
func (s *RejectedCalls) addUnreadable(a *sip.Arrival, trunk trunks.Trunk) {
	s.add(rejectedArrival(a), replicas.UnknownNumber, fmt.Sprintf(
		"Set number_format and number_prefix of trunk %s to how it writes numbers.", trunk.Name))
}

// addUnassigned adds a call if the called number is not assigned to an agent.
func (s *RejectedCalls) addUnassigned(a *sip.Arrival) {
	s.add(rejectedArrival(a), replicas.UnassignedNumber,
		"Assign the number to an agent: ringfence numbers add NUMBER AGENT.")
}

// AddArrived adds a call whose address belonged to a trunk. The trunk has been removed since the
// call arrived.
func (s *RejectedCalls) AddArrived(a *sip.Arrival) { s.AddUnknown(rejectedArrival(a)) }

func rejectedArrival(a *sip.Arrival) transport.Rejected {
	return transport.Rejected{
		Source: a.Source, Transport: a.Transport, CallID: a.CallID, From: "sip:" + a.From, To: "sip:" + a.To,
		UserAgent: a.UserAgent,
	}
}

// add counts and stores a refused call or connection. If the call is stored already, the new one
// replaces it. A retransmitted INVITE is not counted again. A connection has no Call-ID, so each
// connection is counted.
func (s *RejectedCalls) add(from transport.Rejected, reason replicas.Reason, hint string) {
	if s == nil {
		return
	}
	added := rejectedCall{address: from.Source.Addr(), callID: from.CallID, RejectedCall: replicas.RejectedCall{
		At: time.Now().UTC(), Source: from.Source.String(), Transport: from.Transport, From: maskedParty(from.From),
		To: maskedParty(from.To), UserAgent: cleaned(from.UserAgent), Reason: reason, Hint: cleanText(hint, 2*maxTextLength),
	}}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := slices.IndexFunc(s.last, added.isRepeatOf)
	if known < 0 || added.callID == "" {
		s.counted.WithLabelValues(string(reason)).Inc()
	}
	if known >= 0 {
		s.last = slices.Delete(s.last, known, known+1)
	}
	if len(s.last) == maxRejected {
		s.last = slices.Delete(s.last, 0, 1)
	}
	s.last = append(s.last, added)
}

// isRepeatOf reports whether two refused calls are the same INVITE, or two connections come from
// the same address. A caller repeats an INVITE that gets no response.
func (s rejectedCall) isRepeatOf(other rejectedCall) bool {
	same := s.address == other.address && s.callID == other.callID
	return same && s.Transport == other.Transport && s.Reason == other.Reason
}

// Last returns the stored calls and connections, newest first.
func (s *RejectedCalls) Last() []replicas.RejectedCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]replicas.RejectedCall, 0, len(s.last))
	for _, one := range slices.Backward(s.last) {
		all = append(all, one.RejectedCall)
	}
	return all
}

// Describe implements prometheus.Collector.
func (s *RejectedCalls) Describe(all chan<- *prometheus.Desc) { s.counted.Describe(all) }

// Collect implements prometheus.Collector.
func (s *RejectedCalls) Collect(all chan<- prometheus.Metric) { s.counted.Collect(all) }

// maskedParty returns user@host of the URI in a From or To header, without the display name and
// parameters. If the user is a phone number, it is masked.
func maskedParty(header string) string {
	if _, inside, found := strings.Cut(header, "<"); found {
		header = inside
	}
	if end := strings.IndexAny(header, ">;? \t"); end >= 0 {
		header = header[:end]
	}
	_, rest, found := strings.Cut(header, ":")
	if !found {
		return ""
	}
	user, host := rest, ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, host = rest[:at], rest[at:]
	}
	user, _, _ = strings.Cut(user, ":") // remove the password from the user part of the URI
	user = numberPattern.ReplaceAllStringFunc(cleaned(user), func(n string) string { return phone.Number(n).Masked() })
	return cleaned(user + host)
}

// numberPattern matches a text that looks like a phone number or a long part of one.
var numberPattern = regexp.MustCompile(`\+?[0-9][0-9.()-]{3,}[0-9]`)

func cleaned(text string) string { return cleanText(text, maxTextLength) }

// cleanText removes characters that are not printable, and shortens the text to maxLength
// characters.
func cleanText(text string, maxLength int) string {
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	runes := []rune(text)
	return string(runes[:min(len(runes), maxLength)])
}
