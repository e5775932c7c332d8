package sip_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

const (
	loopback = "127.0.0.1:0"
	offer    = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n"
	answer   = "v=0\r\no=- 2 2 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 50000 RTP/AVP 0\r\n"
)

// fixture contains a user agent, and a trunk that sends the messages that a test chooses.
type fixture struct {
	t     *testing.T
	agent *sip.UserAgent
	far   *siptest.Trunk
	trunk sip.Trunk
}

func newFixture(t *testing.T, protocol string, change ...func(*sip.Config)) *fixture {
	t.Helper()
	t.Parallel()
	x := siptest.New(t, transport.Config{UDP: loopback, TCP: loopback})
	return &fixture{t: t, agent: newAgent(t, change...), far: x, trunk: sip.Trunk{
		Name: "test", Host: "127.0.0.1", Port: x.Port(protocol), Transport: protocol, CallerID: sip.InFrom,
	}}
}

func newAgent(t *testing.T, change ...func(*sip.Config)) *sip.UserAgent {
	t.Helper()
	cfg := sip.Config{UDP: loopback, TCP: loopback, MinSession: time.Second, Admit: func(netip.Addr) bool { return true }}
	for _, one := range change {
		one(&cfg)
	}
	agent, err := sip.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Close)
	return agent
}

// leg records which functions of the observer were called.
type leg struct {
	t  *testing.T
	id string
	*sip.Dialog
	mu            sync.Mutex
	notifications []string
	encodeState   []byte
	answer        string
	end           sip.End
	change        chan struct{}
	// offered replaces the observer's function Offered. If offered is nil, the observer answers with
	// a fixed SDP.
	offered func([]byte) ([]byte, error)
	// refuse is the error that Answered returns.
	refuse error
	// sent contains the times that Observer.Sent received.
	sent []time.Time
}

func (l *leg) tell(callback string, also func()) {
	l.mu.Lock()
	l.notifications = append(l.notifications, callback)
	if also != nil {
		also()
	}
	close(l.change)
	l.change = make(chan struct{})
	l.mu.Unlock()
}

func (l *leg) observer() sip.Observer {
	return sip.Observer{
		StoreState: func(state []byte) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.encodeState = state
			return nil
		},
		Sent: func(at time.Time) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.sent = append(l.sent, at)
		},
		Accepted: func(time.Time) { l.tell("taken", nil) },
		Rang:     func(time.Time, []byte) { l.tell("rang", nil) },
		Answered: func(_ time.Time, body []byte) error {
			l.tell("answered", func() { l.answer = string(body) })
			return l.refuse
		},
		Offered: func(body []byte) ([]byte, error) {
			l.tell("offered", nil)
			if l.offered != nil {
				return l.offered(body)
			}
			return []byte(offer), nil
		},
		Agreed: func([]byte) { l.tell("agreed", nil) },
		Ended:  func(e sip.End) { l.tell("ended", func() { l.end = e }) },
	}
}

func (r *fixture) dial(suffix string, change ...func(*sip.Invite, *leg)) *leg {
	r.t.Helper()
	l := &leg{t: r.t, id: uuid.NewString(), change: make(chan struct{})}
	order := sip.Invite{CallID: l.id, From: "+15005550006", To: "+141555501" + suffix, Body: []byte(offer)}
	for _, one := range change {
		one(&order, l)
	}
	d, err := r.agent.Invite(r.t.Context(), r.trunk, order, l.observer())
	if err != nil {
		r.t.Fatalf("invite: %v", err)
	}
	l.Dialog = d
	return l
}

// waitForCallback waits until a function of the observer was called the given number of times.
func (l *leg) waitForCallback(callback string, times int) {
	l.t.Helper()
	timeout := time.After(siptest.Timeout)
	for {
		l.mu.Lock()
		got, change := count(l.notifications, callback), l.change
		received := fmt.Sprint(l.notifications)
		l.mu.Unlock()
		if got >= times {
			return
		}
		select {
		case <-change:
		case <-timeout:
			l.t.Fatalf("calls of %s = %d, want %d: %s", callback, got, times, received)
		}
	}
}

func count(all []string, one string) (times int) {
	for _, other := range all {
		if other == one {
			times++
		}
	}
	return times
}

func (l *leg) ends(cause callstate.Cause, byUs bool, notifications ...string) sip.End {
	l.t.Helper()
	l.waitForCallback("ended", 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end.Cause != cause {
		l.t.Errorf("l.end.Cause = %v, want %v", l.end.Cause, cause)
	} else if l.end.ByUs != byUs {
		l.t.Errorf("l.end.ByUs = %v, want %v", l.end.ByUs, byUs)
	}
	if want := append(notifications, "ended"); len(notifications) > 0 && fmt.Sprint(l.notifications) != fmt.Sprint(want) {
		l.t.Errorf("calls of the observer = %v, want %v", l.notifications, want)
	}
	return l.end
}

func (l *leg) hangUp(cause callstate.Cause) {
	l.t.Helper()
	ctx, done := context.WithTimeout(l.t.Context(), siptest.Timeout)
	defer done()
	if err := l.Hangup(ctx, cause); err != nil {
		l.t.Errorf("hang up: %v", err)
	}
}

func (r *fixture) countRequests(l *leg, method sipmsg.RequestMethod) int {
	return r.far.Requests(method, l.id)
}

func samePorts(t *testing.T) (*siptest.Trunk, error) {
	t.Helper()
	for range 20 {
		free, err := net.Listen("tcp4", loopback)
		if err != nil {
			return nil, err
		}
		addr := free.Addr().String()
		_ = free.Close()
		if conn, err := net.ListenPacket("udp4", addr); err == nil {
			_ = conn.Close()
			return siptest.New(t, transport.Config{UDP: addr, TCP: addr}), nil
		}
	}
	return nil, errors.New("no port is free for both UDP and TCP")
}
