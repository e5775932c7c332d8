package sip

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// CallerID is the header in which a trunk expects the caller ID.
type CallerID string

// InFrom means that the number is in the header From. Asserted means that the number is in
// P-Asserted-Identity (RFC 3325) and the trunk's username is in From.
const (
	InFrom   CallerID = "from"
	Asserted CallerID = "p_asserted_identity"
)

// Trunk describes how requests reach a trunk. This package receives and returns numbers in the
// format of the trunk.
type Trunk struct {
	// ID identifies the trunk in recorded messages (Config.Trace).
	ID uuid.UUID
	// Name appears in logs.
	Name string
	// Host and Port are the address of the trunk. If Port is 0, the port is taken from SRV records.
	// Without SRV records, the transport's default port is used.
	Host string
	Port int
	// Transport is transport.UDP, transport.TCP or transport.TLS.
	Transport string
	// Proxy is the outbound proxy of all requests, as host:port. If empty, no proxy is used.
	Proxy string
	// Domain is the domain in the header From. If empty, Host is used.
	Domain string
	// Username and Password answer challenges of any realm. If both are empty, challenges are not
	// answered.
	Username, Password string
	CallerID           CallerID
	// SessionTimer is the session interval that this side requests (RFC 4028). If it is 0, this side
	// requests none, but accepts an interval that the trunk requests.
	SessionTimer time.Duration
	// CA contains the certificates that are trusted for this trunk over TLS, in PEM. If empty, the
	// system's certificates are trusted.
	CA string
	// LargeOverTCP sends requests above 1300 bytes over TCP even if Transport is UDP (RFC 3261 section
	// 18.1.1).
	LargeOverTCP bool
}

// Check returns an error if a setting is invalid.
func (t Trunk) Check() error {
	switch t.Transport {
	case transport.UDP, transport.TCP, transport.TLS:
	default:
		return fmt.Errorf("check trunk %s: invalid transport %q", t.Name, t.Transport)
	}
	switch t.CallerID {
	case InFrom, Asserted, "":
	default:
		return fmt.Errorf("check trunk %s: invalid caller ID header %q", t.Name, t.CallerID)
	}
	if t.Host == "" || t.Port < 0 || t.Port > 65535 {
		return fmt.Errorf("check trunk %s: host %q or port %d is invalid", t.Name, t.Host, t.Port)
	}
	for _, text := range []string{t.Host, t.Proxy, t.Domain, t.Username} {
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`<>;,"?`, r) }) {
			return fmt.Errorf("check trunk %s: %q is not valid in a SIP header", t.Name, text)
		}
	}
	if t.Proxy != "" {
		if _, _, err := net.SplitHostPort(t.Proxy); err != nil {
			return fmt.Errorf("check trunk %s: proxy: %w", t.Name, err)
		}
	}
	if t.CA != "" {
		if _, err := t.roots(); err != nil {
			return err
		}
	}
	return nil
}

func (t Trunk) roots() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(t.CA)) {
		return nil, fmt.Errorf("check trunk %s: %w", t.Name, errors.New("the CA contains no certificate"))
	}
	return pool, nil
}

func (t Trunk) credentials() transport.Credentials {
	return transport.Credentials{Username: t.Username, Password: t.Password}
}

// uri returns the URI of a user at the trunk, or of the trunk if user is empty.
func (t Trunk) uri(user string) sip.Uri {
	uri := sip.Uri{Scheme: "sip", User: user, Host: t.Host, Port: t.Port}
	if t.Transport != transport.UDP {
		uri.UriParams.Add("transport", strings.ToLower(t.Transport))
	}
	return uri
}

func (t Trunk) identity(user string) sip.Uri {
	domain := t.Domain
	if domain == "" {
		domain = t.Host
	}
	return sip.Uri{Scheme: "sip", User: user, Host: domain}
}

// requestRoute returns the destination of a request that belongs to no dialog, and its Route
// headers.
func (t Trunk) requestRoute() (to transport.Route, routes []sip.Uri) {
	to = transport.Route{Hop: hostPort(t.Host, t.Port), Transport: t.Transport, LargeOverTCP: t.LargeOverTCP}
	if t.Proxy == "" {
		return to, nil
	}
	to.Hop = t.Proxy
	host, port, _ := net.SplitHostPort(t.Proxy)
	n, _ := strconv.Atoi(port)
	proxy := sip.Uri{Scheme: "sip", Host: host, Port: n}
	if t.Transport != transport.UDP {
		proxy.UriParams.Add("transport", strings.ToLower(t.Transport))
	}
	proxy.UriParams.Add("lr", "")
	return to, []sip.Uri{proxy}
}

func hostPort(host string, port int) string {
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port))
}

// allowedMethods contains the methods that this user agent answers. PRACK is missing, so a peer
// must not require reliable provisional responses.
const allowedMethods = "INVITE, ACK, CANCEL, BYE, OPTIONS, INFO, UPDATE, NOTIFY"

// leg is this side's state of a dialog: the local and remote address, and the route of requests
// (RFC 3261 section 12).
type leg struct {
	callID        sip.CallIDHeader
	local, remote sip.FromHeader
	contact       sip.Uri
	target        sip.Uri
	routes        []sip.Uri
	// hop and transport are the destination of the INVITE. They are used if the remote target has
	// no address.
	hop       string
	transport string
	largeTCP  bool
	cseq      uint32
}

func (l *leg) newRequest(method sip.RequestMethod) *sip.Request {
	target, routes := l.target, l.routes
	// The first route is a strict router (RFC 3261 section 12.2.1.1).
	if len(routes) > 0 && !routes[0].UriParams.Has("lr") {
		target, routes = routes[0], append(slices.Clone(routes[1:]), l.target)
	}
	req := sip.NewRequest(method, *target.Clone())
	for _, uri := range routes {
		req.AppendHeader(&sip.RouteHeader{Address: *uri.Clone()})
	}
	forwards := sip.MaxForwardsHeader(70)
	req.AppendHeader(&forwards)
	from, to := l.local, sip.ToHeader{DisplayName: l.remote.DisplayName, Address: *l.remote.Address.Clone(), Params: l.remote.Params.Clone()}
	req.AppendHeader(sip.HeaderClone(&from))
	req.AppendHeader(&to)
	id := l.callID
	req.AppendHeader(&id)
	req.AppendHeader(&sip.CSeqHeader{SeqNo: l.cseq, MethodName: method})
	if method != sip.BYE && method != sip.CANCEL {
		req.AppendHeader(&sip.ContactHeader{Address: *l.contact.Clone()})
	}
	req.SetBody(nil)
	return req
}

// requestRoute returns the destination of requests within the dialog.
func (l *leg) requestRoute() transport.Route {
	to := transport.Route{Hop: l.hop, Transport: l.transport, LargeOverTCP: l.largeTCP}
	next := l.target
	if len(l.routes) > 0 {
		next = l.routes[0]
	}
	if next.Host != "" {
		to.Hop = hostPort(next.Host, next.Port)
	}
	switch requested := strings.ToUpper(next.UriParams.GetOr("transport", "")); {
	case requested == transport.UDP, requested == transport.TCP, requested == transport.TLS:
		to.Transport = requested
	case next.Scheme == "sips":
		to.Transport = transport.TLS
	}
	return to
}

// establishedLeg returns the leg of the dialog that a response establishes.
func (l leg) establishedLeg(res *sip.Response) leg {
	if to := res.To(); to != nil {
		l.remote = to.AsFrom()
	}
	l.routes = nil
	for _, header := range res.GetHeaders("Record-Route") {
		if hop, is := header.(*sip.RecordRouteHeader); is {
			l.routes = append(l.routes, *hop.Address.Clone())
		}
	}
	slices.Reverse(l.routes)
	l.setTarget(res.Contact())
	return l
}

// setTarget stores the newest Contact of the peer, to which later requests are sent.
func (l *leg) setTarget(contact *sip.ContactHeader) {
	if contact != nil && contact.Address.Host != "" && !contact.Address.Wildcard {
		l.target = *contact.Address.Clone()
	}
}

// newAck returns the ACK of a 2xx. Each ACK has a new branch, and the same credentials as the
// INVITE (RFC 3261 section 13.2.2.4).
func (l *leg) newAck(invite *sip.Request, seq uint32) *sip.Request {
	ack := l.newRequest(sip.ACK)
	ack.CSeq().SeqNo = seq
	if invite != nil {
		for _, name := range []string{"Authorization", "Proxy-Authorization"} {
			for _, header := range invite.GetHeaders(name) {
				ack.AppendHeader(sip.HeaderClone(header))
			}
		}
	}
	return ack
}

func (l *leg) newBye(cause callstate.Cause) *sip.Request {
	bye := l.newRequest(sip.BYE)
	bye.AppendHeader(sip.NewHeader("Reason", ReasonHeader(cause)))
	return bye
}

// newCancel returns the CANCEL of an INVITE. It has the same Via and CSeq number (RFC 3261 section
// 9.1).
func newCancel(invite *sip.Request, cause callstate.Cause) *sip.Request {
	req := requestInTransaction(invite, sip.CANCEL)
	req.AppendHeader(sip.NewHeader("Reason", ReasonHeader(cause)))
	return req
}

// newRefusalAck returns the ACK of a final response of 300 or higher, for a transaction that has
// already ended. It has the branch of the INVITE (RFC 3261 section 17.1.1.3).
func newRefusalAck(invite *sip.Request, res *sip.Response) *sip.Request {
	req := requestInTransaction(invite, sip.ACK)
	if to := res.To(); to != nil {
		req.ReplaceHeader(sip.HeaderClone(to))
	}
	return req
}

// requestInTransaction returns a request with the headers that assign it to the transaction of the
// INVITE.
func requestInTransaction(invite *sip.Request, method sip.RequestMethod) *sip.Request {
	req := sip.NewRequest(method, *invite.Recipient.Clone())
	req.AppendHeader(sip.HeaderClone(invite.Via()))
	for _, header := range invite.GetHeaders("Route") {
		req.AppendHeader(sip.HeaderClone(header))
	}
	forwards := sip.MaxForwardsHeader(70)
	req.AppendHeader(&forwards)
	for _, header := range []sip.Header{invite.From(), invite.To(), invite.CallID()} {
		req.AppendHeader(sip.HeaderClone(header))
	}
	req.AppendHeader(&sip.CSeqHeader{SeqNo: invite.CSeq().SeqNo, MethodName: method})
	req.SetBody(nil)
	return req
}

// encodeState encodes the teardown state. If invite is nil, it is the state of the established
// dialog. Otherwise it contains the open INVITE.
func (l *leg) encodeState(invite *sip.Request) []byte {
	to, target := l.requestRoute(), l.target
	s := TeardownState{
		CallID: string(l.callID), From: l.local.Value(), To: l.remote.Value(), Contact: l.contact.String(), URI: target.String(), CSeq: l.cseq,
		Hop: to.Hop, Transport: to.Transport, Answered: invite == nil,
	}
	for _, uri := range l.routes {
		s.Routes = append(s.Routes, "<"+uri.String()+">")
	}
	if invite != nil {
		s.Via, s.Hop, s.Transport, s.CSeq = invite.Via().Value(), invite.Destination(), invite.Transport(), invite.CSeq().SeqNo
	}
	return s.Encode()
}

// restoreLeg returns the leg of a teardown state, and its INVITE if that is still open.
func restoreLeg(s TeardownState) (l leg, invite *sip.Request, err error) {
	l = leg{callID: sip.CallIDHeader(s.CallID), hop: s.Hop, transport: s.Transport, cseq: s.CSeq}
	for _, one := range []struct {
		text string
		into *sip.FromHeader
	}{{s.From, &l.local}, {s.To, &l.remote}} {
		if one.into.DisplayName, err = sip.ParseAddressValue(one.text, &one.into.Address, &one.into.Params); err != nil {
			return l, nil, fmt.Errorf("read teardown state: address: %w", err)
		}
	}
	for _, text := range s.Routes {
		var uri sip.Uri
		if _, err = sip.ParseAddressValue(text, &uri, &sip.HeaderParams{}); err != nil {
			return l, nil, fmt.Errorf("read teardown state: route: %w", err)
		}
		l.routes = append(l.routes, uri)
	}
	if err = errors.Join(sip.ParseUri(s.URI, &l.target), sip.ParseUri(s.Contact, &l.contact)); err != nil {
		return l, nil, fmt.Errorf("read teardown state: %w", err)
	}
	if l.target.Host == "" || l.local.Params.GetOr("tag", "") == "" {
		return l, nil, errors.New("read teardown state: it has no local tag")
	}
	if s.Answered {
		return l, nil, nil
	}
	headers, err := sip.HeadersParser(sip.DefaultHeadersParser()).ParseHeader(nil, []byte("Via: "+s.Via))
	if err != nil {
		return l, nil, fmt.Errorf("read teardown state: via: %w", err)
	}
	via, is := headers[0].(*sip.ViaHeader)
	if !is || len(headers) != 1 || via.Params.GetOr("branch", "") == "" {
		return l, nil, errors.New("read teardown state: invalid Via")
	}
	invite = l.newRequest(sip.INVITE)
	invite.PrependHeader(via)
	return l, invite, nil
}
