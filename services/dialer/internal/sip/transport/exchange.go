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

// maxDatagram is how large a request may be and still go by UDP where TCP is allowed (RFC 3261 18.1.1).
const maxDatagram = 1300

// NotSent says that a request certainly did not leave: no connection, no name, no listener.
type NotSent struct{ Err error }

func (u *NotSent) Error() string { return "not sent: " + u.Err.Error() }

// Unwrap is the fault behind it.
func (u *NotSent) Unwrap() error { return u.Err }

// ErrTimeout says that nobody answered a request.
var ErrTimeout = sip.ErrTransactionTimeout

// Route says where a request goes and how.
type Route struct {
	// Hop is host:port of the next hop; a port of 0 is the transport's own.
	Hop       string
	Transport string
	// LargeOverTCP lets a request that is too large for a datagram go by TCP.
	LargeOverTCP bool
	// Without are the places that the hop's name leads to and where the request was already, for nothing.
	Excluded []string
}

// Name is the hop's host where that is a name; empty: it is an address.
func (r Route) Name() string {
	host, _, err := net.SplitHostPort(r.Hop)
	if err != nil || net.ParseIP(host) != nil {
		return ""
	}
	return strings.ToLower(host)
}

// Token is a tag or the rest of a branch: nobody can guess it.
func Token() string { return strings.ToLower(rand.Text()) }

// Prepare gives a request its way: destination, transport, and a Via with a new branch. An ACK of a non-2xx and a CANCEL bring their own.
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
		return &NotSent{fmt.Errorf("nobody listens at %s here", transport)}
	}
	if transport == UDP {
		req.Laddr = l.udp
	}
	at, err := l.address(to, transport)
	if err != nil {
		return err
	}
	req.SetDestination(at)
	return nil
}

// Restore gives an INVITE that another process sent the way it went; nothing is sent.
func (l *Transport) Restore(invite *sip.Request, hop, transport string) error {
	if l.ports[transport] == 0 {
		return &NotSent{fmt.Errorf("nobody listens at %s here", transport)}
	}
	invite.SetTransport(transport)
	invite.SetDestination(hop)
	if transport == UDP {
		invite.Laddr = l.udp
	}
	return nil
}

// ErrNotPermitted is in the *Unsent error of BeginPermitted if permit returned false.
var ErrNotPermitted = errors.New("the request is not permitted")

// Begin sends a request and returns its transaction. The caller must read the responses until Done,
// or terminate the transaction. An *Unsent error states that nothing left. ctx bounds the
// connecting only.
func (l *Transport) Begin(ctx context.Context, req *sip.Request) (*sip.ClientTx, error) {
	return l.BeginPermitted(ctx, req, nil)
}

// BeginPermitted is Begin with a last condition. It calls permit after the connection is open,
// directly before the request is written. nil permits.
func (l *Transport) BeginPermitted(
	ctx context.Context, req *sip.Request, permit func(context.Context) bool,
) (*sip.ClientTx, error) {
	tx, err := l.connect(ctx, req)
	if err != nil {
		return nil, err
	}
	if permit != nil && !permit(ctx) { // without the lock: it can take seconds, and Close waits for the lock
		tx.Terminate()
		return nil, &NotSent{fmt.Errorf("send %s: %w", req.Method, ErrNotPermitted)}
	}
	l.sending.RLock()
	defer l.sending.RUnlock()
	if l.closed {
		tx.Terminate()
		return nil, &NotSent{net.ErrClosed}
	}
	over, at := l.expectResponse(string(*req.CallID())), time.Now()
	tx.OnTerminate(func(string, error) { over() })
	if err := tx.Init(); err != nil {
		tx.Terminate()
		return nil, fmt.Errorf("send %s: %w", req.Method, err)
	}
	l.TraceSent(req, at)
	return tx, nil
}

// connect opens the connection of a request and returns its transaction. Nothing is sent.
func (l *Transport) connect(ctx context.Context, req *sip.Request) (*sip.ClientTx, error) {
	l.sending.RLock()
	defer l.sending.RUnlock()
	if l.closed {
		return nil, &NotSent{net.ErrClosed}
	}
	tx, err := l.transactions.NewClientTransaction(ctx, req)
	if err != nil {
		return nil, &NotSent{err}
	}
	return tx, nil
}

// Send sends what nobody answers: an ACK.
func (l *Transport) Send(req *sip.Request) error {
	l.sending.RLock()
	defer l.sending.RUnlock()
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

// Reply sends a response that belongs to no transaction of ours.
func (l *Transport) Reply(res *sip.Response) error {
	at := time.Now()
	if err := l.transport.WriteMsg(res); err != nil {
		return fmt.Errorf("send response %d: %w", res.StatusCode, err)
	}
	l.TraceSent(res, at)
	return nil
}

// Credentials of a trunk.
type Credentials struct{ Username, Password string }

// Exchange sends a request, to the next place where nobody is (RFC 3263 4.3), answers challenges, and returns the final response. next tells the CSeq of another try; nil: one more than the last.
func (l *Transport) Exchange(ctx context.Context, req *sip.Request, to Route, who Credentials, next func() uint32) (*sip.Response, error) {
	var asked Challenge
	var nobody error
	for {
		if err := l.Prepare(req, to); err != nil {
			return nil, cmp.Or(nobody, err)
		}
		res, err := l.Once(ctx, req)
		if Refused(err) && ctx.Err() == nil {
			nobody = cmp.Or(nobody, err)
			to.Excluded = append(to.Excluded, req.Destination())
			req.RemoveHeader("Via")
			continue
		}
		if err != nil {
			return nil, err
		}
		again := Again(req)
		if !asked.Answer(again, res, who) {
			return res, nil
		}
		if next != nil {
			again.CSeq().SeqNo = next()
		}
		to.Hop, to.Excluded = req.Destination(), nil // whoever asked
		req = again
	}
}

// Once sends a request that has its Via and its way, and returns the final response.
func (l *Transport) Once(ctx context.Context, req *sip.Request) (*sip.Response, error) {
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

// Again is a copy of a request to be sent once more, in a transaction of its own: the next CSeq, and no Via yet. The old one belongs to its transaction.
func Again(req *sip.Request) *sip.Request {
	again := req.Clone()
	again.CSeq().SeqNo++
	again.RemoveHeader("Via")
	return again
}

// Challenge remembers the challenges of one request, so that wrong credentials are not sent for ever. The zero value is ready.
type Challenge struct{ seen map[string]int }

// maxChallenges is how many proxies and servers on the way may each want credentials.
const maxChallenges = 4

// Answer puts credentials for a 401 or 407 into the request. false: it is none, it cannot be answered, or the same realm has refused these credentials before
// (but for a nonce that had only grown old).
func (a *Challenge) Answer(req *sip.Request, res *sip.Response, who Credentials) bool {
	challenge, answer := "WWW-Authenticate", "Authorization"
	switch res.StatusCode {
	case sip.StatusUnauthorized:
	case sip.StatusProxyAuthRequired:
		challenge, answer = "Proxy-Authenticate", "Proxy-Authorization"
	default:
		return false
	}
	if who.Username == "" {
		return false
	}
	for _, header := range res.GetHeaders(challenge) {
		asked, err := digest.ParseChallenge(header.Value())
		if err != nil {
			continue
		}
		asked.Algorithm = strings.ToUpper(asked.Algorithm)
		if !digest.CanDigest(asked) {
			continue
		}
		key := answer + " " + asked.Realm
		if times := a.seen[key]; times > 1 || times == 1 && !asked.Stale || len(a.seen) >= maxChallenges {
			return false
		}
		said, err := digest.Digest(asked, digest.Options{
			Method: string(req.Method), URI: req.Recipient.String(), Username: who.Username, Password: who.Password,
			GetBody: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(req.Body()))), nil },
		})
		if err != nil {
			continue
		}
		if a.seen == nil {
			a.seen = map[string]int{}
		}
		a.seen[key]++
		put(req, answer, asked.Realm, said.String())
		return true
	}
	return false
}

// put replaces what was said to the same realm and keeps what was said to others.
func put(req *sip.Request, name, realm, value string) {
	var kept []sip.Header
	for _, header := range req.GetHeaders(name) {
		if said, err := digest.ParseCredentials(header.Value()); err == nil && said.Realm != realm {
			kept = append(kept, header)
		}
	}
	for req.RemoveHeader(name) {
	}
	for _, header := range append(kept, sip.NewHeader(name, value)) {
		req.AppendHeader(header)
	}
}

// Refused says that an error is a definite one of sending: nothing left.
func Refused(err error) bool {
	var unsent *NotSent
	return errors.As(err, &unsent)
}
