package sipcarrier_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

func TestArrive_RefusesACallIfAllChannelsOfTheTrunkAreInUse(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.channels = 2
	p := x.begin(loopback)
	caller, err := sip.New(sip.Config{UDP: loopback, Admit: func(netip.Addr) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(caller.Close)
	became := make(chan int, 1)
	for n, want := range []int{180, 180, 503} {
		_, err := caller.Invite(t.Context(), sip.Trunk{Name: "us", Host: "127.0.0.1", Port: p.agent.Port(transport.UDP), Transport: transport.UDP, CallerID: sip.InFrom},
			sip.Invite{CallID: uuid.NewString(), From: "+14155550100", To: "+14155550200", Body: []byte(audio)},
			sip.Observer{Rang: func(time.Time, []byte) { became <- 180 }, Ended: func(e sip.End) { became <- e.Status }})
		if err != nil {
			t.Fatal(err)
		}
		if got := <-became; got != want {
			t.Fatalf("response to caller %d = %d, want %d", n+1, got, want)
		}
	}
	if got := p.Live(); got != 2 {
		t.Errorf("live legs = %d, want 2", got)
	}
}

func TestArrive_CallToUnassignedNumberIsRejectedWith404(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.serves = func(_ context.Context, to string) (bool, error) { return to == "+14155550200", nil }
	p := x.begin(loopback)
	caller, err := sip.New(sip.Config{UDP: loopback, Admit: func(netip.Addr) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(caller.Close)
	us := sip.Trunk{
		Name: "us", Host: "127.0.0.1", Port: p.agent.Port(transport.UDP), Transport: transport.UDP, CallerID: sip.InFrom,
	}
	for to, want := range map[string]int{"+14155550200": 180, "+14155550299": 404} {
		became := make(chan int, 2)
		_, err := caller.Invite(t.Context(), us,
			sip.Invite{CallID: uuid.NewString(), From: "+14155550100", To: to, Body: []byte(audio)},
			sip.Observer{
				Rang:  func(time.Time, []byte) { became <- 180 },
				Ended: func(e sip.End) { became <- e.Status },
			})
		if err != nil {
			t.Fatal(err)
		}
		if got := <-became; got != want {
			t.Errorf("first response of a call to %s = %d, want %d", to, got, want)
		}
	}
}
