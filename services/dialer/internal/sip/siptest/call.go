package siptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/sip/transport"
)

// Request is a request that the user agent sent within a call.
type Request struct {
	*sip.Request
	Tx *sip.ServerTx
}

// Call is the far end of one call.
type Call struct {
	x        *Trunk
	Invite   *sip.Request
	Tag      string
	Contact  sip.Uri
	tx       *sip.ServerTx
	in       chan Request
	canceled chan struct{}
	deferred []Request // requests for which no step of the script has waited yet
	mu       sync.Mutex
	cseq     uint32
	done     bool
}

// handleRequest passes a request to the script. After the end of the script, handleRequest itself
// answers the request.
func (c *Call) handleRequest(req *sip.Request, tx *sip.ServerTx) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.in <- Request{req, tx}
		return
	}
	c.fallback(Request{req, tx})
}

func (c *Call) fallback(a Request) {
	if a.IsAck() {
		a.Tx.Terminate()
		return
	}
	_ = a.Tx.Respond(sip.NewResponseFromRequest(a.Request, 200, "OK", nil))
}

func (c *Call) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
	for _, a := range c.deferred {
		c.fallback(a)
	}
	for {
		select {
		case a := <-c.in:
			c.fallback(a)
		default:
			return
		}
	}
}

// Response returns a response to the INVITE, with the tag and the Contact of the far end.
func (c *Call) Response(code int, body string, headers ...string) *sip.Response {
	var content []byte
	if body != "" {
		content = []byte(body)
	}
	res := sip.NewResponseFromRequest(c.Invite, code, fmt.Sprintf("Status %d", code), content)
	if code > 100 {
		res.To().Params.Add("tag", c.Tag)
		res.AppendHeader(&sip.ContactHeader{Address: *c.Contact.Clone()})
	}
	if body != "" {
		res.AppendHeader(sip.NewHeader("Content-Type", "application/sdp"))
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		res.AppendHeader(sip.NewHeader(name, value))
	}
	return res
}

// Respond sends a response to the INVITE.
func (c *Call) Respond(code int, body string, headers ...string) {
	_ = c.tx.Respond(c.Response(code, body, headers...))
}

// Send sends a response that the test has built.
func (c *Call) Send(res *sip.Response) { _ = c.tx.Respond(res) }

// Ignore sends no response, not even 100. The script starts again at a retransmitted INVITE.
func (c *Call) Ignore() { c.tx.Terminate() }

// Answer sends 200 and retransmits it until the ACK arrives.
func (c *Call) Answer(body string, headers ...string) {
	res := c.Response(200, body, headers...)
	acked := make(chan struct{})
	c.x.running.Go(func() {
		for begun := time.Now(); time.Since(begun) < Timeout; {
			_ = c.tx.Respond(res)
			select {
			case <-acked:
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	c.Next(sip.ACK)
	close(acked)
}

// NotCanceledFor waits for the given time. It returns true if no CANCEL arrives within this time.
func (c *Call) NotCanceledFor(a time.Duration) bool {
	select {
	case <-c.canceled:
		return false
	case <-time.After(a):
		return true
	}
}

// Canceled waits until the INVITE is canceled.
func (c *Call) Canceled() {
	select {
	case <-c.canceled:
	case <-time.After(Timeout):
		c.x.t.Errorf("call %s was not cancelled", c.Invite.CallID().Value())
	}
}

// AnswerWhileCanceled sends 180, waits for the CANCEL and then sends 200, as if CANCEL and 200 had
// crossed.
func (c *Call) AnswerWhileCanceled(body string) {
	c.tx.OnCancel(func(*sip.Request) { _ = c.x.transport.Reply(c.Response(200, body)) })
	c.Respond(180, "")
	c.Canceled()
}

// Next waits for a request with the method. It keeps other requests for later calls of Next. After
// the end of the script, the requests that are still kept are answered with 200.
func (c *Call) Next(method sip.RequestMethod) Request {
	if i := slices.IndexFunc(c.deferred, func(a Request) bool { return a.Method == method }); i >= 0 {
		a := c.deferred[i]
		c.deferred = slices.Delete(c.deferred, i, i+1)
		return a
	}
	timeout := time.After(Timeout)
	for {
		select {
		case a := <-c.in:
			if a.Method == method {
				if a.IsAck() {
					a.Tx.Terminate()
				}
				return a
			}
			c.deferred = append(c.deferred, a)
		case <-timeout:
			c.x.t.Errorf("call %s: no %s came", c.Invite.CallID().Value(), method)
			return Request{Request: sip.NewRequest(method, c.Contact)}
		}
	}
}

// Header returns the value of a header, or "" if there is none.
func (a Request) Header(name string) string {
	if header := a.GetHeader(name); header != nil {
		return header.Value()
	}
	return ""
}

// Reply sends a response to the request.
func (a Request) Reply(code int, headers ...string) {
	if a.Tx == nil {
		return
	}
	res := sip.NewResponseFromRequest(a.Request, code, fmt.Sprintf("Status %d", code), nil)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		res.AppendHeader(sip.NewHeader(name, value))
	}
	_ = a.Tx.Respond(res)
}

// Hangup waits for the BYE and answers it with 200.
func (c *Call) Hangup() Request {
	a := c.Next(sip.BYE)
	a.Reply(200)
	return a
}

// Request sends a request within the call and returns the final response.
func (c *Call) Request(method sip.RequestMethod, body string, headers ...string) *sip.Response {
	c.mu.Lock()
	c.cseq++
	seq := c.cseq
	c.mu.Unlock()
	req := c.build(method, seq)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.AppendHeader(sip.NewHeader(name, value))
	}
	if body != "" {
		req.AppendHeader(sip.NewHeader("Content-Type", "application/sdp"))
		req.SetBody([]byte(body))
	}
	ctx, done := context.WithTimeout(context.Background(), Timeout)
	defer done()
	res, err := c.x.transport.Exchange(ctx, req, c.route(), transport.Credentials{}, nil)
	if err != nil {
		c.x.t.Errorf("%s within call %s: %v", method, c.Invite.CallID().Value(), err)
		return sip.NewResponse(0, "")
	}
	return res
}

// Ack acknowledges a 200 to an INVITE that the script sent within the call.
func (c *Call) Ack(body string) {
	c.mu.Lock()
	seq := c.cseq
	c.mu.Unlock()
	req := c.build(sip.ACK, seq)
	if body != "" {
		req.AppendHeader(sip.NewHeader("Content-Type", "application/sdp"))
		req.SetBody([]byte(body))
	}
	if err := c.x.transport.Prepare(req, c.route()); err != nil {
		c.x.t.Error(err)
		return
	}
	if err := c.x.transport.Send(req); err != nil {
		c.x.t.Error(err)
	}
}

func (c *Call) route() transport.Route {
	target := c.Invite.Contact().Address
	return transport.Route{Hop: fmt.Sprintf("%s:%d", target.Host, target.Port), Transport: c.Invite.Transport()}
}

func (c *Call) build(method sip.RequestMethod, seq uint32) *sip.Request {
	req := sip.NewRequest(method, c.Invite.Contact().Address)
	forwards := sip.MaxForwardsHeader(70)
	req.AppendHeader(&forwards)
	from := sip.FromHeader{Address: c.Invite.To().Address}
	from.Params.Add("tag", c.Tag)
	to := sip.ToHeader{Address: c.Invite.From().Address, Params: c.Invite.From().Params.Clone()}
	id := *c.Invite.CallID()
	req.AppendHeader(&from)
	req.AppendHeader(&to)
	req.AppendHeader(&id)
	req.AppendHeader(&sip.CSeqHeader{SeqNo: seq, MethodName: method})
	req.AppendHeader(&sip.ContactHeader{Address: *c.Contact.Clone()})
	req.SetBody(nil)
	return req
}
