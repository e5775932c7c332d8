package sip_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/trunk"
)

// several are trunks of a process, in order.
type several []trunk.Trunk

func (s several) Active(context.Context) ([]trunk.Trunk, error) { return s, nil }

func TestOriginate_OnlyATrunkThatHeardNothingIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	made := func(name string, port int, transport trunk.Transport, channels int32) trunk.Trunk {
		one := trunk.New(uuid.New())
		one.Name, one.Host, one.Port, one.Transport, one.SessionSeconds, one.Channels = name, "127.0.0.1", uint16(port), transport, 0, channels
		return one
	}
	for _, tt := range []struct {
		name  string
		order func(good trunk.Trunk) several
		to    string
		check func(error) bool
		dials int
	}{
		{"nobody listens at the first", func(good trunk.Trunk) several { return several{made("dead", 1, trunk.TCP, 10), good} }, "12", func(err error) bool { return err == nil }, 1},
		{"the first refuses", func(good trunk.Trunk) several {
			again := good
			again.TrunkID = uuid.New()
			return several{good, again}
		}, "13", refusedBy(false), 0},
		{"nobody listens anywhere", func(trunk.Trunk) several { return several{made("dead", 1, trunk.TCP, 10)} }, "01", refusedBy(true), 0},
		{"the only one is full", func(good trunk.Trunk) several { good.Channels = 0; return several{good} }, "01", refusedBy(true), 0},
		{"there is none", func(trunk.Trunk) several { return nil }, "01", refusedBy(true), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newExchange(t)
			p := x.beginOver(loopback, func(good trunk.Trunk) trunks { return tt.order(good) })
			o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+1415555010" + tt.to, DialedAt: time.Now()}
			if err := p.Originate(t.Context(), o); !tt.check(err) {
				t.Errorf("originate: %v", err)
			}
			if got := x.dials(o.CallID); got != tt.dials {
				t.Errorf("%d dials, want %d", got, tt.dials)
			}
			if _, err := p.Find(t.Context(), o.CallID); tt.dials == 0 && !errors.Is(err, carrier.ErrUnknownCall) {
				t.Errorf("find: %v, want ErrUnknownCall", err)
			}
		})
	}
}

func refusedBy(unsent bool) func(error) bool {
	return func(err error) bool {
		var refused *carrier.Refused
		return errors.As(err, &refused) && refused.Unsent == unsent && refused.Cause != ""
	}
}
