package transport

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/icholy/digest"
)

// maxDatagram is the size above which a request is sent over TCP, if LargeOverTCP is set (RFC 3261
// section 18.1.1).
const maxDatagram = 1300

// NotSent is the error of a request of which nothing was sent, because there was no connection, no
// address or no listener.
type NotSent struct{ Err error }

func (u *NotSent) Error() string { return "not sent: " + u.Err.Error() }

// Unwrap returns the cause.
func (u *NotSent) Unwrap() error { return u.Err }

// ErrTimeout is returned if no response to a request arrives in time.
var ErrTimeout = sip.ErrTransactionTimeout

// Route is the destination of a request.
type Route struct {
	// Hop is the next hop, as host:port. If the port is 0, it is taken from SRV records. Without SRV
	// records, the transport's default port is used.
	Hop       string
	Transport string
	// LargeOverTCP sends a request over TCP if it is too large for a datagram.
	LargeOverTCP bool
	// Excluded contains addresses of the hop that must not be used again, because sending to them
	// failed or they refused the request.
	Excluded []string
}

// Name returns the host of the hop if it is a name, or "" if it is an address.
func (r Route) Name() string {
	host, _, err := net.SplitHostPort(r.Hop)
	if err != nil || net.ParseIP(host) != nil {
		return ""
	}
	return strings.ToLower(host)
}

// Token returns a random text for a tag or a branch. It cannot be guessed.
func Token() string { return strings.ToLower(rand.Text()) }

// Prepare sets the destination and the transport of a request, and adds a Via with a new branch. It
// keeps the Via of a CANCEL, and of the ACK of a final response that is not a 2xx.
func (l *Transport) Prepare(req *sip.Request, to Route) error {
	transport := to.Transport
	req.SetTransport(transport)
	own := req.Via()
	if own == nil {
		via := &sip.ViaHeader{
			ProtocolName: "SIP", ProtocolVersion: "2.0", Transport: transport, Host: l.cfg.Advertised, Port: l.ports[transport],
		}
		via.Params.Add("branch", sip.RFC3261BranchMagicCookie+"."+Token())
		via.Params.Add("rport", "")
		req.PrependHeader(via)
		if transport == UDP && to.LargeOverTCP && l.ports[TCP] != 0 && len(req.String()) > maxDatagram {
			transport, via.Transport, via.Port = TCP, TCP, l.ports[TCP]
			req.SetTransport(TCP)
		}
	}
	if l.ports[transport] == 0 {
		return &NotSent{fmt.Errorf("there is no %s listener", transport)}
	}
	if transport == UDP {
		req.Laddr = l.udp
	}
	at, err := l.resolveAddress(to, transport)
	if err != nil {
		return err
	}
	req.SetDestination(at)
	return nil
}

// Restore sets the destination of an INVITE that another process sent. It sends nothing.
func (l *Transport) Restore(invite *sip.Request, hop, transport string) error {
	if l.ports[transport] == 0 {
		return &NotSent{fmt.Errorf("there is no %s listener", transport)}
	}
	invite.SetTransport(transport)
	invite.SetDestination(hop)
	if transport == UDP {
		invite.Laddr = l.udp
	}
	return nil
}

// ErrNotPermitted is wrapped by the *NotSent error that BeginPermitted returns if permit returned
// false.
var ErrNotPermitted = errors.New("the request is not permitted")

// Begin sends a request and returns its transaction. The caller must read the responses until Done,
// or terminate the transaction. If the error is a *NotSent, nothing was sent. ctx limits only how
// long opening the connection may take.
func (l *Transport) Begin(ctx context.Context, req *sip.Request) (*sip.ClientTx, error) {
	return l.BeginPermitted(ctx, req, nil)
}

// BeginPermitted calls permit after the connection is open, directly before it writes the request.
// Otherwise it does the same as Begin. If permit is nil, the request is permitted.
func (l *Transport) BeginPermitted(
	ctx context.Context, req *sip.Request, permit func(context.Context) bool,
) (*sip.ClientTx, error) {
	tx, err := l.connect(ctx, req)
	if err != nil {
		return nil, err
	}
	// sendMu is not locked during permit, because permit can take seconds and Close waits for this
	// lock.
	if permit != nil && !permit(ctx) {
		tx.Terminate()
		return nil, &NotSent{fmt.Errorf("send %s: %w", req.Method, ErrNotPermitted)}
	}
	l.sendMu.RLock()
	defer l.sendMu.RUnlock()
	if l.closed {
		tx.Terminate()
		return nil, &NotSent{net.ErrClosed}
	}
	stopExpecting, at := l.expectResponse(string(*req.CallID())), time.Now()
	tx.OnTerminate(func(string, error) { stopExpecting() })
	if err := tx.Init(); err != nil {
		tx.Terminate()
		return nil, fmt.Errorf("send %s: %w", req.Method, err)
	}
	l.TraceSent(req, at)
	return tx, nil
}

// connect opens the connection of a request and returns its transaction. It sends nothing.
func (l *Transport) connect(ctx context.Context, req *sip.Request) (*sip.ClientTx, error) {
	l.sendMu.RLock()
	defer l.sendMu.RUnlock()
	if l.closed {
		return nil, &NotSent{net.ErrClosed}
	}
	tx, err := l.transactions.NewClientTransaction(ctx, req)
	if err != nil {
		return nil, &NotSent{err}
	}
	return tx, nil
}

// Send sends an ACK, which has no response.
func (l *Transport) Send(req *sip.Request) error {
	l.sendMu.RLock()
	defer l.sendMu.RUnlock()
	if l.closed {
		return &NotSent{net.ErrClosed}
	}
	at := time.Now()
	if err := l.transport.WriteMsg(req); err != nil {
		return fmt.Errorf("send %s: %w", req.Method, err)
	}
	l.TraceSent(req, at)
	return nil
}

// Reply sends a response that belongs to no transaction.
func (l *Transport) Reply(res *sip.Response) error {
	at := time.Now()
	if err := l.transport.WriteMsg(res); err != nil {
		return fmt.Errorf("send response %d: %w", res.StatusCode, err)
	}
	l.TraceSent(res, at)
	return nil
}

// Credentials are the username and the password of a trunk.
type Credentials struct{ Username, Password string }

// Exchange sends a request, answers challenges and returns the final response. If it cannot reach
// an address, it tries the next address. next returns the CSeq for a repeated request. If next is
// nil, Exchange increases the CSeq by one.
func (l *Transport) Exchange(
	ctx context.Context, req *sip.Request, to Route, credentials Credentials, next func() uint32,
) (*sip.Response, error) {
	var challenges Challenge
	var firstErr error
	for {
		if err := l.Prepare(req, to); err != nil {
			return nil, cmp.Or(firstErr, err)
		}
		res, err := l.ExchangeOnce(ctx, req)
		if IsNotSent(err) && ctx.Err() == nil {
			firstErr = cmp.Or(firstErr, err)
			to.Excluded = append(to.Excluded, req.Destination())
			req.RemoveHeader("Via")
			continue
		}
		if err != nil {
			return nil, err
		}
		again := NextRequest(req)
		if !challenges.Answer(again, res, credentials) {
			return res, nil
		}
		if next != nil {
			again.CSeq().SeqNo = next()
		}
		to.Hop, to.Excluded = req.Destination(), nil // a challenge is valid only for the address that sent it
		req = again
	}
}

// ExchangeOnce sends a prepared request and returns the final response.
func (l *Transport) ExchangeOnce(ctx context.Context, req *sip.Request) (*sip.Response, error) {
	tx, err := l.Begin(ctx, req)
	if err != nil {
		return nil, err
	}
	defer tx.Terminate()
	for {
		select {
		case res := <-tx.Responses():
			if !res.IsProvisional() {
				return res, nil
			}
		case <-tx.Done():
			return nil, fmt.Errorf("%s: %w", req.Method, tx.Err())
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w", req.Method, ctx.Err())
		}
	}
}

// NextRequest returns a copy of a request for a new transaction: without the Via, and with the next
// CSeq.
func NextRequest(req *sip.Request) *sip.Request {
	again := req.Clone()
	again.CSeq().SeqNo++
	again.RemoveHeader("Via")
	return again
}

// Challenge counts the challenges of one request, so that wrong credentials are not sent
// repeatedly. The zero value is ready to use.
type Challenge struct{ countByRealm map[string]int }

// maxChallenges is the maximum number of proxies and servers that may challenge one request.
const maxChallenges = 4

// Answer adds credentials for a 401 or 407 to the request. It returns false if it cannot answer the
// challenge, or if the realm has already rejected these credentials. A stale nonce is not a
// rejection.
func (a *Challenge) Answer(req *sip.Request, res *sip.Response, credentials Credentials) bool {
	challenge, answer := "WWW-Authenticate", "Authorization"
	switch res.StatusCode {
	case sip.StatusUnauthorized:
	case sip.StatusProxyAuthRequired:
		challenge, answer = "Proxy-Authenticate", "Proxy-Authorization"
	default:
		return false
	}
	if credentials.Username == "" {
		return false
	}
	for _, header := range res.GetHeaders(challenge) {
		parsed, err := digest.ParseChallenge(header.Value())
		if err != nil {
			continue
		}
		parsed.Algorithm = strings.ToUpper(parsed.Algorithm)
		if !digest.CanDigest(parsed) {
			continue
		}
		key := answer + " " + parsed.Realm
		if times := a.countByRealm[key]; times > 1 || times == 1 && !parsed.Stale || len(a.countByRealm) >= maxChallenges {
			return false
		}
		authorization, err := digest.Digest(parsed, digest.Options{
			Method: string(req.Method), URI: req.Recipient.String(),
			Username: credentials.Username, Password: credentials.Password,
			GetBody: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(req.Body()))), nil },
		})
		if err != nil {
			continue
		}
		if a.countByRealm == nil {
			a.countByRealm = map[string]int{}
		}
		a.countByRealm[key]++
		setCredentials(req, answer, parsed.Realm, authorization.String())
		return true
	}
	return false
}

// setCredentials replaces the credentials of a realm. It keeps the credentials of other realms.
func setCredentials(req *sip.Request, name, realm, value string) {
	var kept []sip.Header
	for _, header := range req.GetHeaders(name) {
		if credentials, err := digest.ParseCredentials(header.Value()); err == nil && credentials.Realm != realm {
			kept = append(kept, header)
		}
	}
	for req.RemoveHeader(name) {
	}
	for _, header := range append(kept, sip.NewHeader(name, value)) {
		req.AppendHeader(header)
	}
}

// IsNotSent reports whether the error is a *NotSent error.
func IsNotSent(err error) bool {
	var unsent *NotSent
	return errors.As(err, &unsent)
}
