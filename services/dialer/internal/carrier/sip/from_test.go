package sip_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/signal/signaltest"
	"ringfence.dev/services/dialer/internal/trunk"
)

// The number on record is the number in the INVITE: From predicts it, and a trunk that would show another one is
// not used.
func TestFrom_IsTheNumberThatThePhoneShows(t *testing.T) {
	t.Parallel()
	const wanted, shown = "+15005550006", "+14155550100"
	x := newExchange(t)
	invites := make(chan string, 1)
	x.far.On("31", func(c *signaltest.Call) {
		invites <- c.Invite.From().Address.User
		c.Respond(486, "")
	})
	p := x.beginOver(loopback, func(good trunk.Trunk) trunks {
		good.CallerIDs = []string{shown}
		return several{good}
	})
	p.awaitAnswers(t, p.over)
	from, err := p.From(t.Context(), wanted, nil)
	if err != nil {
		t.Fatal(err)
	}
	if from != shown {
		t.Errorf("From = %q, want %q", from, shown)
	}
	o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: wanted, To: "+14155550231", DialedAt: time.Now()}
	var refused *carrier.Refused
	if err := p.Originate(t.Context(), o); !errors.As(err, &refused) {
		t.Fatalf("Originate with another number = %v, want a refusal", err)
	}
	if !refused.Unsent {
		t.Error("Unsent = false, want true")
	}
	o.CallID, o.From = uuid.Must(uuid.NewV7()), from
	if err := p.Originate(t.Context(), o); !errors.As(err, &refused) {
		t.Fatalf("Originate = %v, want a refusal by the callee", err)
	}
	if got := <-invites; got != shown {
		t.Errorf("From of the INVITE = %q, want %q", got, shown)
	}
}
