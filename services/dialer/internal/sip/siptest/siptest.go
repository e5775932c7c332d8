// Package siptest is a SIP trunk for tests. The last digits of a dialed number select a script. The
// script plays the far end message by message. It can also send wrong messages.
package siptest

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/icholy/digest"

	"ringfence.dev/services/dialer/internal/sip/transport"
)

// Timeout limits every wait of a script. It exists only to end a test that hangs.
const Timeout = 30 * time.Second

// Trunk is a SIP trunk that answers calls with scripts.
type Trunk struct {
	t         testing.TB
	transport *transport.Transport
	mu        sync.Mutex
	scripts   map[string]func(*Call)
	calls     map[string]*Call // by Call-ID
	requests  []string         // method and Call-ID of every request
	responses []string         // status, CSeq and Call-ID of every response
	outside   func(*sip.Request, *sip.ServerTx) bool
	within    func(*sip.Request, *sip.ServerTx)
	running   sync.WaitGroup
	closed    bool
	// challenge is 401 or 407, or 0 if requests are not challenged.
	challenge          int
	username, password string
}

// New returns a trunk that listens on the loopback address until the test ends.
func New(t testing.TB, transports transport.Config) *Trunk {
	t.Helper()
	x := &Trunk{t: t, scripts: map[string]func(*Call){}, calls: map[string]*Call{}}
	transports.Admit = func(netip.Addr) bool { return true }
	transports.Response = func(res *sip.Response) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.responses = append(x.responses, fmt.Sprint(res.StatusCode, " ", res.CSeq().Value(), " ", res.CallID().Value()))
	}
	ready := make(chan struct{})
	transports.Request = func(req *sip.Request, tx *sip.ServerTx) { <-ready; x.handleRequest(req, tx) }
	opened, err := transport.Open(transports)
	if err != nil {
		t.Fatal(err)
	}
	x.transport = opened
	close(ready)
	t.Cleanup(func() {
		x.mu.Lock()
		x.closed = true
		x.mu.Unlock()
		x.running.Wait()
		x.transport.Close()
	})
	return x
}

// Challenge challenges all requests with 401 or 407.
func (x *Trunk) Challenge(code int, username, password string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.challenge, x.username, x.password = code, username, password
}

// Port returns the port of a transport.
func (x *Trunk) Port(transport string) int { return x.transport.Port(transport) }

// Transport returns the trunk's transport, so that a test can send its own messages.
func (x *Trunk) Transport() *transport.Transport { return x.transport }

// On sets the script for dialed numbers that end in the suffix.
func (x *Trunk) On(suffix string, script func(*Call)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.scripts[suffix] = script
}

// HandleOutside sets the function that receives all requests that belong to no call, except INVITE.
// If handle returns false, the trunk answers the request with 200.
func (x *Trunk) HandleOutside(handle func(*sip.Request, *sip.ServerTx) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.outside = handle
}

// HandleWithinDialog sets the handler for requests of unknown dialogs. A test needs it to build a
// proxy.
func (x *Trunk) HandleWithinDialog(handle func(*sip.Request, *sip.ServerTx)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.within = handle
}

// Requests returns how many requests with the method arrived in a call. If callID is empty, it
// counts all calls.
func (x *Trunk) Requests(method sip.RequestMethod, callID string) (times int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, one := range x.requests {
		if name, id, _ := strings.Cut(one, " "); name == string(method) && (callID == "" || id == callID) {
			times++
		}
	}
	return times
}

// Responses returns how many responses with the code arrived in a call. It counts only responses to
// this trunk's request with the method and the CSeq seq.
func (x *Trunk) Responses(code int, seq uint32, method sip.RequestMethod, callID string) (times int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, one := range x.responses {
		if one == fmt.Sprintf("%d %d %s %s", code, seq, method, callID) {
			times++
		}
	}
	return times
}

// Wait waits until the call has arrived, and returns it.
func (x *Trunk) Wait(callID string) *Call {
	x.t.Helper()
	for begun := time.Now(); time.Since(begun) < Timeout; time.Sleep(time.Millisecond) {
		x.mu.Lock()
		c := x.calls[callID]
		x.mu.Unlock()
		if c != nil {
			return c
		}
	}
	x.t.Fatalf("call %s never came in", callID)
	return nil
}

func (x *Trunk) handleRequest(req *sip.Request, tx *sip.ServerTx) {
	id := req.CallID().Value()
	x.mu.Lock()
	x.requests = append(x.requests, string(req.Method)+" "+id)
	c, outside, inside := x.calls[id], x.outside, x.within
	x.mu.Unlock()
	_, within := req.To().Params.Get("tag")
	switch {
	case within && c != nil:
		c.handleRequest(req, tx)
	case within && inside != nil:
		inside(req, tx)
	case req.Method == sip.INVITE:
		if x.challenged(req, tx) {
			return
		}
		x.begin(req, tx)
	case req.IsAck():
		tx.Terminate()
	case within || req.IsCancel():
		_ = tx.Respond(sip.NewResponseFromRequest(req, 481, "Nothing Known", nil))
	case outside == nil || !outside(req, tx):
		if x.challenged(req, tx) {
			return
		}
		_ = tx.Respond(sip.NewResponseFromRequest(req, 200, "OK", nil))
	}
}

// challenged returns true, and sends a challenge, if challenges are on and the request does not
// have the right credentials.
func (x *Trunk) challenged(req *sip.Request, tx *sip.ServerTx) bool {
	x.mu.Lock()
	code, username, password := x.challenge, x.username, x.password
	x.mu.Unlock()
	if code == 0 {
		return false
	}
	challenge, answer := "WWW-Authenticate", "Authorization"
	if code == sip.StatusProxyAuthRequired {
		challenge, answer = "Proxy-Authenticate", "Proxy-Authorization"
	}
	asked := &digest.Challenge{Realm: "trunk.test", Nonce: "nonce-1", Algorithm: "MD5", QOP: []string{"auth"}}
	if header := req.GetHeader(answer); header != nil {
		credentials, err := digest.ParseCredentials(header.Value())
		if err == nil {
			want, _ := digest.Digest(
				asked,
				digest.Options{
					Method:   string(req.Method),
					URI:      credentials.URI,
					Username: username,
					Password: password,
					Cnonce:   credentials.Cnonce,
					Count:    credentials.Nc,
				},
			)
			if credentials.Response == want.Response && credentials.URI == req.Recipient.String() &&
				credentials.Username == username {
				return false
			}
		}
	}
	res := sip.NewResponseFromRequest(req, code, "Who Are You", nil)
	res.AppendHeader(sip.NewHeader(challenge, asked.String()))
	_ = tx.Respond(res)
	return true
}

func (x *Trunk) begin(req *sip.Request, tx *sip.ServerTx) {
	c := &Call{
		x: x, Invite: req, tx: tx, Tag: transport.Token(), in: make(chan Request, 64),
		canceled: make(chan struct{}), cseq: 1000,
		Contact: x.transport.Contact("callee", req.Transport()),
	}
	tx.OnCancel(func(*sip.Request) { close(c.canceled) })
	x.mu.Lock()
	x.calls[req.CallID().Value()] = c
	var script func(*Call)
	longest := -1
	for suffix, one := range x.scripts {
		if strings.HasSuffix(req.Recipient.User, suffix) && len(suffix) > longest {
			script, longest = one, len(suffix)
		}
	}
	if script != nil && !x.closed {
		x.running.Go(func() { script(c); c.end() })
	}
	x.mu.Unlock()
	if script == nil {
		c.Respond(404, "")
	}
}
