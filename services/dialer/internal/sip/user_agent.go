// Package sip is a SIP user agent: it sets up, maintains and ends legs. A leg is the SIP dialog of
// one call. The package uses no database and no media, and does not parse SDP. An Observer receives
// the events of a leg in order. Package transport contains the transactions and sockets.
package sip

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/siptrace"
)

// Config configures a UserAgent. A transport whose address is empty has no listener. If a trunk
// uses a transport, that transport needs a listener, because trunks send requests too.
type Config struct {
	UDP, TCP, TLS string
	// Advertised is the host in Via and Contact. If empty, the host of the first listener is used.
	Advertised  string
	Certificate *tls.Certificate
	// UserAgent is the header User-Agent. If empty, the header is not sent.
	UserAgent string
	// Admit reports whether an address may send requests that belong to no call. From other addresses,
	// only messages of existing calls are accepted. If Admit is nil, no address is admitted.
	Admit func(netip.Addr) bool
	// Rejected is called for INVITEs and connections from addresses that Admit refuses. It must not
	// block, and it can be nil.
	Rejected func(transport.Rejected)
	// Arrive receives inbound calls. It must not block. If Arrive is nil, inbound calls are refused.
	Arrive func(*Arrival)
	// ArrivalsPerSecond limits how many inbound calls Arrive receives; 0 means 50. Calls above the
	// limit are refused with 503.
	ArrivalsPerSecond int
	// MinSession is the shortest session timer that is accepted. 0 means 90 s (RFC 4028 section 5).
	MinSession time.Duration
	// Linger is how long an ended leg handles messages that still arrive. 0 means 40 s, which is
	// longer than 64*T1.
	Linger time.Duration
	Log    *slog.Logger
	// Trace records the messages of trunks. If Trace is nil, no messages are recorded. TrunkAt returns
	// the trunk at an address. It is used for the first message of an inbound call, and can be nil.
	Trace   *siptrace.Recorder
	TrunkAt func(peer netip.AddrPort, transport string) (trunkID uuid.UUID, ok bool)
	// Peer returns the trunk at an address, with its credentials. They are needed for the BYE that
	// ends a call of a dead process. Peer can be nil.
	Peer func(peer netip.AddrPort, transport string) (Trunk, bool)
	// Names resolves host names. If nil, the system's resolver is used.
	Names transport.Names
}

// UserAgent is a SIP user agent. It handles calls until Close is called. Its methods are safe for
// concurrent use.
type UserAgent struct {
	cfg       Config
	transport *transport.Transport
	opened    chan struct{} // closed when transport is set; messages can arrive earlier

	mu            sync.Mutex
	tlsTransports map[tlsIdentity]*transport.Transport
	// legs contains the legs by Call-ID and this side's tag. An ended leg is kept for the time
	// Config.Linger.
	legs map[sip.CallIDHeader]map[string]*Dialog
	// strays contains the 200s to INVITEs of legs that this user agent does not have.
	strays       strays
	live         int                // number of legs that have not ended
	idle         chan struct{}      // closed when draining is true and live is 0
	peers        map[netip.Addr]int // number of legs at each address of a peer
	draining     bool
	closed       bool
	arrivalLimit tokenBucket
	// requestTrunks contains the trunks of requests that belong to no call.
	requestTrunks requestTrunks
	running       sync.WaitGroup
	stop          chan struct{}
	ctx           context.Context // ends when stop is closed
	cancel        context.CancelFunc
}

// New opens the listeners and returns a user agent.
func New(cfg Config) (*UserAgent, error) {
	if cfg.MinSession == 0 {
		cfg.MinSession = 90 * time.Second
	}
	if cfg.Linger == 0 {
		cfg.Linger = 40 * time.Second
	}
	if cfg.ArrivalsPerSecond == 0 {
		cfg.ArrivalsPerSecond = 50
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	a := &UserAgent{
		cfg: cfg, tlsTransports: map[tlsIdentity]*transport.Transport{}, legs: map[sip.CallIDHeader]map[string]*Dialog{},
		opened: make(chan struct{}), idle: make(chan struct{}), stop: make(chan struct{}),
		peers: map[netip.Addr]int{}, arrivalLimit: tokenBucket{perSecond: float64(cfg.ArrivalsPerSecond)},
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	opened, err := transport.Open(transport.Config{
		UDP: cfg.UDP, TCP: cfg.TCP, TLS: cfg.TLS, Advertised: cfg.Advertised, Certificate: cfg.Certificate, Log: cfg.Log, Names: cfg.Names,
		Admit: a.admitsAddress, HasCall: a.hasCall, Rejected: cfg.Rejected,
		Trace: a.recordMessage, Tracing: cfg.Trace.IsRecording,
		Request: func(req *sip.Request, tx *sip.ServerTx) {
			if a.awaitTransport() == nil {
				a.handleRequest(req, tx)
			}
		},
		Response: a.handleResponse,
	})
	if err != nil {
		a.cancel()
		return nil, err
	}
	a.transport = opened
	close(a.opened)
	return a, nil
}

// awaitTransport waits until the transport is set. It returns an error if the user agent does not
// start or is closed.
func (a *UserAgent) awaitTransport() error {
	select {
	case <-a.opened:
		return nil
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
}

// Port returns the port at which a transport listens, or 0.
func (a *UserAgent) Port(transport string) int { return a.transport.Port(transport) }

// ErrDraining is returned by Invite after Drain.
var ErrDraining = errors.New("the SIP user agent is draining")

// tlsIdentity identifies a TLS transport. ca contains the trusted certificates, in PEM, and name is
// the name that the peer's certificate must contain. If both are empty, the system's certificates
// are trusted and the certificate must contain the peer's address.
type tlsIdentity struct{ ca, name string }

// maxTLSTransports is the maximum number of TLS transports. Each server name needs a separate
// transport, and a peer can choose server names.
const maxTLSTransports = 256

// transportTo returns the transport for requests of a trunk to a hop.
func (a *UserAgent) transportTo(t Trunk, to transport.Route) (*transport.Transport, error) {
	if to.Transport != transport.TLS {
		return a.transport, nil
	}
	by := tlsIdentity{name: to.Name()}
	if t.Transport == transport.TLS {
		by.ca = t.CA
	}
	if by == (tlsIdentity{}) {
		return a.transport, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return nil, errors.New("the SIP user agent is closed")
	case a.tlsTransports[by] != nil:
		return a.tlsTransports[by], nil
	case len(a.tlsTransports) == maxTLSTransports:
		return nil, fmt.Errorf("reach %s over TLS: the limit of %d server names is reached", by.name, maxTLSTransports)
	}
	settings := transport.Config{
		Advertised: a.transport.Host(), Ports: a.transport.Ports(), ServerName: by.name, Log: a.cfg.Log,
		Names: a.cfg.Names, HasCall: a.hasCall, Request: a.handleRequest, Response: a.handleResponse,
		Trace: a.recordMessage, Tracing: a.cfg.Trace.IsRecording,
	}
	var err error
	if by.ca != "" {
		if settings.Roots, err = t.roots(); err != nil {
			return nil, err
		}
	}
	own, err := transport.Open(settings)
	if err != nil {
		return nil, err
	}
	a.tlsTransports[by] = own
	return own, nil
}

// Drain stops accepting new calls: OPTIONS and INVITE are answered with 503. Drain returns when the
// last leg has ended, or when ctx ends.
func (a *UserAgent) Drain(ctx context.Context) error {
	a.mu.Lock()
	if !a.draining {
		a.draining = true
		if a.live == 0 {
			close(a.idle)
		}
	}
	a.mu.Unlock()
	select {
	case <-a.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Live returns the number of legs that have not ended.
func (a *UserAgent) Live() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.live
}

// Close stops the user agent immediately. Live legs continue at the peer. Another process can end
// them: it calls Reap with their teardown states.
func (a *UserAgent) Close() {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	a.closed = true
	close(a.stop)
	a.cancel()
	lines := []*transport.Transport{a.transport}
	for _, own := range a.tlsTransports {
		lines = append(lines, own)
	}
	a.mu.Unlock()
	for _, one := range lines {
		one.Close()
	}
	a.running.Wait()
}

// addLeg registers a leg. It returns an error if the user agent accepts no more legs.
func (a *UserAgent) addLeg(d *Dialog) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errors.New("the SIP user agent is closed")
	}
	if a.draining && !d.orphaned {
		return ErrDraining
	}
	tags := a.legs[d.id]
	if tags == nil {
		tags = map[string]*Dialog{}
		a.legs[d.id] = tags
	}
	tags[d.tag] = d
	if !d.orphaned {
		a.live++
	}
	return nil
}

// spawn runs work in a goroutine. Close waits for that goroutine. After Close, spawn does nothing.
func (a *UserAgent) spawn(work func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.running.Go(work)
	}
}

func (a *UserAgent) legEnded() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.live--; a.live == 0 && a.draining {
		close(a.idle)
	}
}

func (a *UserAgent) removeLeg(d *Dialog) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if tags := a.legs[d.id]; tags[d.tag] == d {
		if delete(tags, d.tag); len(tags) == 0 {
			delete(a.legs, d.id)
		}
		for _, addr := range d.peerAddresses {
			if a.peers[addr]--; a.peers[addr] == 0 {
				delete(a.peers, addr)
			}
		}
	}
}

func (a *UserAgent) find(id *sip.CallIDHeader, tag string) *Dialog {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.legs[*id][tag]
}

// admitsAddress reports whether an address may send requests that belong to no call. Either
// Config.Admit permits it, or the address takes part in a call. The peer of a call can send
// requests over a new connection.
func (a *UserAgent) admitsAddress(addr netip.Addr) bool {
	a.mu.Lock()
	inCall := a.peers[addr] > 0
	a.mu.Unlock()
	return inCall || a.cfg.Admit != nil && a.cfg.Admit(addr)
}

// addPeer adds the address of a peer or proxy to the addresses of the leg. It ignores a text that
// is not an IP address with a port.
func (d *Dialog) addPeer(hostPort string) {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return
	}
	addr = addr.Unmap()
	d.agent.mu.Lock()
	defer d.agent.mu.Unlock()
	if d.agent.legs[d.id][d.tag] == d && !slices.Contains(d.peerAddresses, addr) {
		d.peerAddresses = append(d.peerAddresses, addr)
		d.agent.peers[addr]++
	}
}

func (a *UserAgent) hasCall(callID string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.legs[sip.CallIDHeader(callID)]) > 0
}

// Probe sends OPTIONS to a trunk. Any response except 503 is a success.
func (a *UserAgent) Probe(ctx context.Context, t Trunk) error {
	_, err := a.Options(ctx, t)
	return err
}

// Reply is the final response to a request that belongs to no call.
type Reply struct {
	Status int
	Reason string
	// Challenged is true if the trunk requested credentials. If the trunk has a username, credentials
	// were sent.
	Challenged bool
}

// Options sends OPTIONS to a trunk, answers a challenge, and returns the final response. It returns
// an error if there was no response, or if the response was 503.
func (a *UserAgent) Options(ctx context.Context, t Trunk) (Reply, error) {
	reply, err := a.exchange(ctx, t, sip.OPTIONS)
	if err != nil {
		return Reply{}, fmt.Errorf("probe trunk %s: %w", t.Name, err)
	}
	if reply.Status == sip.StatusServiceUnavailable {
		return reply, fmt.Errorf("probe trunk %s: %d %s", t.Name, reply.Status, reply.Reason)
	}
	return reply, nil
}

// Bindings sends a REGISTER without a Contact. Such a request reads the registrations and changes
// nothing (RFC 3261 section 10.2.3).
func (a *UserAgent) Bindings(ctx context.Context, t Trunk) (Reply, error) {
	reply, err := a.exchange(ctx, t, sip.REGISTER)
	if err != nil {
		return Reply{}, fmt.Errorf("read the registrations at trunk %s: %w", t.Name, err)
	}
	return reply, nil
}

func (a *UserAgent) exchange(ctx context.Context, t Trunk, method sip.RequestMethod) (Reply, error) {
	req, by, to, err := a.newRequest(t, method, t.uri(""))
	if err != nil {
		return Reply{}, err
	}
	first := req.CSeq().SeqNo
	res, err := by.Exchange(ctx, req, to, t.credentials(), nil)
	if err != nil {
		return Reply{}, err
	}
	asks := res.StatusCode == sip.StatusUnauthorized || res.StatusCode == sip.StatusProxyAuthRequired
	// If the CSeq is higher than the first CSeq, the request was sent again with credentials.
	return Reply{Status: res.StatusCode, Reason: res.Reason, Challenged: asks || res.CSeq().SeqNo > first}, nil
}

// Address returns the address, as host:port, at which trunks reach this user agent over the
// transport. It returns "" if the user agent has no listener for the transport.
func (a *UserAgent) Address(transport string) string {
	if a.transport.Port(transport) == 0 {
		return ""
	}
	return hostPort(a.transport.Host(), a.transport.Port(transport))
}

// Advertised returns the host at which peers reach this user agent.
func (a *UserAgent) Advertised() string { return a.transport.Host() }

// Register registers this user agent's contact at a trunk. If expires is 0, it removes the
// registration. granted is the lifetime that the trunk accepted.
func (a *UserAgent) Register(ctx context.Context, t Trunk, expires time.Duration) (granted time.Duration, err error) {
	req, by, to, err := a.newRequest(t, sip.REGISTER, t.uri(""))
	if err != nil {
		return 0, err
	}
	contact := sip.ContactHeader{Address: by.Contact(t.Username, to.Transport)}
	req.AppendHeader(&contact)
	seconds := sip.ExpiresHeader(expires / time.Second) //nolint:gosec // 32 bits are enough for 136 years
	req.AppendHeader(&seconds)
	res, err := by.Exchange(ctx, req, to, t.credentials(), nil)
	if err != nil {
		return 0, fmt.Errorf("register at trunk %s: %w", t.Name, err)
	}
	if !res.IsSuccess() {
		return 0, fmt.Errorf("register at trunk %s: %d %s", t.Name, res.StatusCode, res.Reason)
	}
	return grantedFor(res, contact, expires), nil
}

func (a *UserAgent) newRequest(
	t Trunk, method sip.RequestMethod, uri sip.Uri,
) (*sip.Request, *transport.Transport, transport.Route, error) {
	if err := t.Check(); err != nil {
		return nil, nil, transport.Route{}, err
	}
	to, routes := t.requestRoute()
	by, err := a.transportTo(t, to)
	if err != nil {
		return nil, nil, transport.Route{}, err
	}
	us := leg{
		callID: sip.CallIDHeader(transport.Token()), local: sip.FromHeader{Address: t.identity(t.Username)}, remote: sip.FromHeader{Address: t.identity(t.Username)},
		target: uri, routes: routes, cseq: 1, contact: by.Contact("", to.Transport),
	}
	us.local.Params.Add("tag", transport.Token())
	if a.cfg.Trace.IsRecording() {
		a.mu.Lock()
		a.requestTrunks.add(string(us.callID), t.ID)
		a.mu.Unlock()
	}
	req := us.newRequest(method)
	if method == sip.REGISTER {
		req.RemoveHeader("Contact")
	}
	a.addUserAgent(req)
	return req, by, to, nil
}

func (a *UserAgent) addUserAgent(req *sip.Request) {
	if a.cfg.UserAgent != "" {
		req.AppendHeader(sip.NewHeader("User-Agent", a.cfg.UserAgent))
	}
}

// headerValues returns all values of a header, as they were received.
func headerValues(msg sip.Message, name string) (all []string) {
	for _, header := range msg.GetHeaders(name) {
		all = append(all, header.Value())
	}
	return all
}

// grantedFor returns the lifetime of this user agent's registration: that of the contact in the
// response, or else that of the header Expires, or else the requested lifetime.
func grantedFor(res *sip.Response, ours sip.ContactHeader, requested time.Duration) time.Duration {
	seconds := func(text string) (time.Duration, bool) {
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
		return time.Duration(n) * time.Second, err == nil //nolint:gosec // n has at most 31 bits
	}
	for _, header := range res.GetHeaders("Contact") {
		contact, is := header.(*sip.ContactHeader)
		if !is || contact.Address.Host != ours.Address.Host || contact.Address.Port != ours.Address.Port {
			continue
		}
		if granted, ok := seconds(contact.Params.GetOr("expires", "")); ok {
			return granted
		}
	}
	if header := res.GetHeader("Expires"); header != nil {
		if granted, ok := seconds(header.Value()); ok {
			return granted
		}
	}
	return requested
}
