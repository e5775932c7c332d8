package carrier

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// Carriers contains the carriers of the live workspaces and of the test workspaces. If all calls
// are simulated, both fields contain the same carrier.
type Carriers struct{ Live, Test Carrier }

// Of returns the carrier of a call. test is true for a call of a test workspace.
func (c Carriers) Of(test bool) Carrier {
	if test {
		return c.Test
	}
	return c.Live
}

// ErrNoTestCarrier is returned by NoTestCarrier.
var ErrNoTestCarrier = errors.New("SIM_URL is missing: calls of test workspaces need the simulated carrier")

// NoTestCarrier is the carrier of the test workspaces if none is configured. It refuses all calls.
type NoTestCarrier struct{}

// Name returns the name of the carrier of test workspaces.
func (NoTestCarrier) Name() string { return dialqueue.TestCarrier }

// Originate refuses the call.
func (NoTestCarrier) Originate(context.Context, Originate) (time.Time, error) {
	return time.Time{}, &Refused{Cause: callstate.NetworkOutOfOrder, NotSent: true, Err: ErrNoTestCarrier}
}

// Answer returns ErrUnknownCall.
func (NoTestCarrier) Answer(context.Context, uuid.UUID) error { return ErrUnknownCall }

// Hangup returns ErrUnknownCall, so that the dialer ends a call that was placed under an earlier
// configuration.
func (NoTestCarrier) Hangup(context.Context, uuid.UUID) (CallStatus, error) {
	return CallStatus{}, ErrUnknownCall
}

// Refuse returns ErrUnknownCall.
func (NoTestCarrier) Refuse(context.Context, uuid.UUID) (CallStatus, error) {
	return CallStatus{}, ErrUnknownCall
}

// Find returns ErrUnknownCall.
func (NoTestCarrier) Find(context.Context, uuid.UUID) (CallStatus, error) {
	return CallStatus{}, ErrUnknownCall
}

// Ready returns nil, because the carrier always responds.
func (NoTestCarrier) Ready(context.Context) error { return nil }
