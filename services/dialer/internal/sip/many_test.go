package sip

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

func TestInvite_ManyConcurrentCallsLeaveNoLeg(t *testing.T) {
	t.Parallel()
	x := siptest.New(t, transport.Config{UDP: "127.0.0.1:0"})
	x.On("1", func(c *siptest.Call) { c.Respond(180, ""); c.Answer("x"); c.Hangup() })
	x.On("2", func(c *siptest.Call) { c.Respond(180, ""); c.Answer("x"); c.Request(sip.BYE, "") })
	x.On("3", func(c *siptest.Call) { c.Respond(486, "") })
	x.On("4", func(c *siptest.Call) { c.Respond(180, ""); c.Canceled() })
	a, err := New(Config{UDP: "127.0.0.1:0", Linger: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	trunk := Trunk{Name: "test", Host: "127.0.0.1", Port: x.Port(transport.UDP), Transport: transport.UDP}
	const each = 60
	var all sync.WaitGroup
	var mu sync.Mutex
	ends := map[string]int{}
	for i := range 4 * each {
		all.Add(1)
		id, to := fmt.Sprintf("many-%d", i), fmt.Sprintf("+1%d", i%4+1)
		ready, up := make(chan *Dialog, 1), make(chan struct{})
		_, err := func() (*Dialog, error) {
			d, err := a.Invite(t.Context(), trunk, Invite{CallID: id, From: "+1", To: to, Body: []byte("y")}, Observer{
				Rang: func(time.Time, []byte) {
					if i%4+1 == 4 {
						close(up)
					}
				},
				Answered: func(time.Time, []byte) error {
					if i%4+1 == 1 {
						close(up)
					}
					return nil
				},
				Ended: func(e End) {
					mu.Lock()
					ends[to+" "+string(e.Cause)]++
					mu.Unlock()
					all.Done()
				},
			})
			ready <- d
			return d, err
		}()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			d := <-ready
			select {
			case <-up:
				_ = d.Hangup(t.Context(), callstate.NormalClearing)
			case <-d.Done():
			}
		}()
	}
	all.Wait()
	for _, want := range []string{"+11 normal_clearing", "+12 normal_clearing", "+13 user_busy", "+14 originator_cancel"} {
		if ends[want] != each {
			t.Errorf("%s: %d of %d; all: %v", want, ends[want], each, ends)
		}
	}
	testkit.NoError(t, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if got := len(a.legs) + len(a.peers) + a.live; got != 0 {
			return fmt.Errorf("legs = %d, peers = %d, live calls = %d, want 0 of each", len(a.legs),
				len(a.peers), a.live)
		}
		return nil
	})
}
