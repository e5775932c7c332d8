package sipcarrier_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/trunks"
)

// The call is stored with the number that From returns. So the INVITE must contain this number.
func TestFrom_ReturnsTheNumberThatTheINVITEContains(t *testing.T) {
	t.Parallel()
	const wanted, shown = "+15005550006", "+14155550100"
	x := newFixture(t)
	invites := make(chan string, 1)
	x.far.On("31", func(c *siptest.Call) {
		invites <- c.Invite.From().Address.User
		c.Respond(486, "")
	})
	p := x.startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
		good.CallerIDs = []string{shown}
		return trunkList{good}
	})
	p.awaitAnswers(t, p.over)
	from, _, err := p.From(t.Context(), wanted, nil)
	if err != nil {
		t.Fatal(err)
	}
	if from != shown {
		t.Errorf("From = %q, want %q", from, shown)
	}
	o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: wanted, To: "+14155550231"}
	var refused *carrier.Refused
	if _, err := p.Originate(t.Context(), o); !errors.As(err, &refused) {
		t.Fatalf("Originate with another number = %v, want a refusal", err)
	}
	if !refused.NotSent {
		t.Error("Unsent = false, want true")
	}
	o.CallID, o.From = uuid.Must(uuid.NewV7()), from
	if _, err := p.Originate(t.Context(), o); !errors.As(err, &refused) {
		t.Fatalf("Originate = %v, want a refusal by the callee", err)
	}
	if got := <-invites; got != shown {
		t.Errorf("From of the INVITE = %q, want %q", got, shown)
	}
}

// The provider of another trunk may reject a caller ID that does not belong to it.
func TestOriginate_CallerIDOfATrunkIsNotSentOverAnotherTrunk(t *testing.T) {
	t.Parallel()
	const shown = "+14155550101"
	x := newFixture(t)
	busy := func(c *siptest.Call) { c.Respond(486, "") }
	owner, _ := scriptedTrunk(t, busy)
	other, dials := scriptedTrunk(t, busy)
	var one, two trunks.Trunk
	p := x.startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
		one, two = good, good
		one.TrunkID, one.Port, one.CallerIDs = uuid.New(), uint16(owner), []string{shown}
		two.TrunkID, two.Port, two.CallerIDs = uuid.New(), uint16(other), nil
		return trunkList{one, two}
	})
	p.awaitAnswers(t, one, two)
	from, over, err := p.From(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if from != shown {
		t.Errorf("From = %q, want %q", from, shown)
	}
	if want := one.TrunkID.String(); over != want {
		t.Errorf("chosen trunk = %q, want %q", over, want)
	}
	o := carrier.Originate{
		CallID: uuid.Must(uuid.NewV7()), From: from, TrunkNumber: true, To: "+14155550112", TrunkID: over,
		ExcludeTrunks: []string{over}, // exclude the trunk that owns the caller ID
	}
	var refused *carrier.Refused
	if _, err := p.Originate(t.Context(), o); !errors.As(err, &refused) {
		t.Fatalf("Originate = %v, want a refusal", err)
	}
	if !refused.NotSent {
		t.Error("Unsent = false, want true")
	}
	if got := dials(); got != 0 {
		t.Errorf("INVITEs to the other trunk = %d, want 0", got)
	}
}

// After the first trunk's last token, From must return the second trunk and its caller number.
func TestFrom_ReturnsTheSecondTrunkIfTheFirstHasNoToken(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	busy := func(c *siptest.Call) { c.Respond(486, "") }
	slow, first := scriptedTrunk(t, busy)
	fast, second := scriptedTrunk(t, busy)
	var one, two trunks.Trunk
	p := x.startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
		one, two = good, good
		one.TrunkID, one.Port, one.Priority, one.CallsPerSecond = uuid.New(), uint16(slow), 1, 1
		two.TrunkID, two.Port, two.Priority = uuid.New(), uint16(fast), 2
		one.CallerIDs, two.CallerIDs = []string{"+14155550101"}, []string{"+14155550102"}
		return trunkList{one, two}
	})
	p.awaitAnswers(t, one, two)
	type choice struct{ from, over string }
	choices, wantFirst := make([]choice, 10), 0
	for i := range choices {
		from, over, err := p.From(t.Context(), "+15005550006", nil)
		if err != nil {
			t.Fatal(err)
		}
		choices[i] = choice{from: from, over: over}
		if over == one.TrunkID.String() {
			wantFirst++
		}
	}
	if wantFirst == len(choices) {
		t.Errorf("calls for which the first trunk is chosen = %d, want fewer", wantFirst)
	}
	for _, chosen := range choices {
		o := carrier.Originate{
			CallID: uuid.Must(uuid.NewV7()), From: chosen.from, To: "+14155550141", TrunkID: chosen.over,
		}
		var refused *carrier.Refused
		if _, err := p.Originate(t.Context(), o); !errors.As(err, &refused) {
			t.Fatalf("Originate = %v, want a refusal by the callee", err)
		}
	}
	if got := first(); got != wantFirst {
		t.Errorf("calls over the first trunk = %d, want %d", got, wantFirst)
	}
	if got, want := second(), len(choices)-wantFirst; got != want {
		t.Errorf("calls over the second trunk = %d, want %d", got, want)
	}
}
