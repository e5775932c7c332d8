package sip

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// Over TCP, the 407 and the end of its transaction can be ready at the same time. Go's select then
// chooses one of them at random, so the test makes many calls. The user agent must answer the 407
// even if select chooses the end of the transaction.
func TestInvite_AnswersAChallengeWhoseTransactionHasEnded(t *testing.T) {
	t.Parallel()
	const loopback = "127.0.0.1:0"
	x := siptest.New(t, transport.Config{TCP: loopback})
	x.Challenge(407, "account", "secret")
	x.On("01", func(c *siptest.Call) { c.Respond(486, "") })
	a, err := New(Config{TCP: loopback, Admit: func(netip.Addr) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	trunk := Trunk{Name: "test", Host: "127.0.0.1", Port: x.Port(transport.TCP), Transport: transport.TCP, Username: "account", Password: "secret"}
	for range 20 {
		var end End
		order := Invite{CallID: uuid.NewString(), From: "+15005550006", To: "+14155550101", FirstResponse: time.Minute}
		d, tx, err := a.startInvite(t.Context(), trunk, order, Observer{Ended: func(e End) { end = e }})
		if err != nil {
			t.Fatal(err)
		}
		for over := false; !over; {
			select {
			case <-tx.Responses():
			case <-tx.Done():
				over = true
			}
		}
		switch answered := d.runSetup(tx); {
		case answered:
			t.Error("answered = true, want false")
		case end.Cause != callstate.UserBusy:
			t.Errorf("end.Cause = %v, want %v", end.Cause, callstate.UserBusy)
		case end.Status != 486:
			t.Errorf("end.Status = %v, want 486", end.Status)
		}
	}
}

// The teardown state cannot be stored, which is a fault of the database. So the 401 must not count
// as a refusal by the trunk.
func TestInvite_CredentialsAreNotSentIfTheStateCannotBeStored(t *testing.T) {
	t.Parallel()
	const loopback = "127.0.0.1:0"
	x := siptest.New(t, transport.Config{UDP: loopback})
	x.Challenge(401, "account", "secret")
	a, err := New(Config{UDP: loopback, Admit: func(netip.Addr) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	trunk := Trunk{
		Name: "test", Host: "127.0.0.1", Port: x.Port(transport.UDP), Transport: transport.UDP, Username: "account", Password: "secret",
	}
	stored, ended := 0, make(chan End, 1)
	order := Invite{CallID: uuid.NewString(), From: "+15005550006", To: "+14155550101"}
	_, err = a.Invite(t.Context(), trunk, order, Observer{
		StoreState: func([]byte) error {
			if stored++; stored > 1 {
				return errors.New("the database is away")
			}
			return nil
		},
		Ended: func(e End) { ended <- e },
	})
	if err != nil {
		t.Fatal(err)
	}
	end := <-ended
	if got, want := end.Status, 401; got != want {
		t.Errorf("status = %d, want %d", got, want)
	}
	if !end.LocalFault {
		t.Error("ours = false, want true")
	}
}
