package sip

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/circuit"
	"ringfence.dev/services/dialer/internal/signal"
	"ringfence.dev/services/dialer/internal/signal/upkeep"
	"ringfence.dev/services/dialer/internal/trunk"
)

func newCare(probe upkeep.Probe) *care {
	looks := upkeep.New(upkeep.Config{Name: "far", Probe: probe})
	return &care{name: "far", upkeep: looks, circuit: circuit.New(5, time.Second)}
}

func refusal(status int, cause call.Cause, operator bool) error {
	response := &Response{Trunk: "far", Status: status, Reason: "No"}
	return &carrier.Refused{Cause: cause, OperatorFault: operator, Err: response}
}

func TestOperatorFault(t *testing.T) {
	t.Parallel()
	refusedNumber := refusal(404, call.UnallocatedNumber, false)
	forbidden := refusal(403, call.CallRejected, false)
	elsewhere := func(status int) signal.End { return signal.End{Status: status, Elsewhere: true} }
	tests := []struct {
		name  string
		heard []error
		end   signal.End
		want  bool
	}{
		{name: "401 after the digest", end: elsewhere(401), want: true},
		{name: "407 after the digest", heard: []error{nil}, end: elsewhere(407), want: true},
		{name: "401 after ringing", end: signal.End{Status: 401}, want: false},
		{name: "403 from a trunk that took no call", end: elsewhere(403), want: true},
		{name: "403 from a trunk that took a call", heard: []error{nil}, end: elsewhere(403), want: false},
		{name: "403 from a trunk that refused a number", heard: []error{refusedNumber}, end: elsewhere(403), want: false},
		{
			name: "403 for five calls in a row", heard: []error{nil, forbidden, forbidden, forbidden, forbidden, forbidden},
			end: elsewhere(403), want: true,
		},
		{name: "403 with a cause of the callee's network", end: signal.End{Status: 403}, want: false},
		{name: "503", end: elsewhere(503), want: false},
	}
	for _, tt := range tests {
		o := newCare(nil)
		for _, said := range tt.heard {
			o.heard(said)
		}
		if got := o.operatorFault(tt.end); got != tt.want {
			t.Errorf("%s: operator fault = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The first OPTIONS precedes the first call. An INVITE without an answer makes the trunk wait for its next one.
func TestChannels_NeedAnAnswerToOPTIONS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan error)
		o := newCare(func(ctx context.Context) error {
			select {
			case err := <-answers:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		over := trunk.Trunk{Channels: 10}
		check := func(when string, live, want int, wantUsable bool) {
			t.Helper()
			got, usable := o.channels(over, live, time.Now())
			if got != want {
				t.Errorf("%s: channels = %d, want %d", when, got, want)
			}
			if usable != wantUsable {
				t.Errorf("%s: usable = %v, want %v", when, usable, wantUsable)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- o.upkeep.Run(ctx) }()
		check("before the first answer", 3, 3, false)
		answers <- nil
		synctest.Wait()
		check("after the first answer", 3, 10, true)
		o.heard(errors.New("silence"))
		check("after an INVITE without an answer", 3, 3, false)
		answers <- nil
		synctest.Wait()
		check("after the next OPTIONS", 3, 10, true)
		o.heard(refusal(401, call.ProviderAuthFailed, true))
		check("while the circuit is open", 3, 3, false)
		time.Sleep(time.Second)
		check("when the circuit is half-open", 3, 4, true)
		if !o.allow() {
			t.Error("the half-open circuit does not let one call through")
		}
		check("while one call tests the trunk", 3, 3, false)
		o.heard(nil)
		check("after the call was taken", 3, 10, true)
		stop()
		<-done
	})
}

// The log says why no trunk can take calls, once a minute.
func TestIdle_WarnsOnceAMinute(t *testing.T) { // it replaces the default logger
	var written bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&written, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		var quiet idle
		unknown := func(uuid.UUID) *care { return nil }
		far := []trunk.Trunk{{Name: "far"}}
		check := func(when, want string, active []trunk.Trunk) {
			t.Helper()
			written.Reset()
			quiet.warn(t.Context(), active, unknown)
			got := written.String()
			if !strings.Contains(got, want) {
				t.Errorf("%s: log = %q, want %q", when, got, want)
			}
			if want == "" && got != "" {
				t.Errorf("%s: log = %q, want nothing", when, got)
			}
		}
		check("at the start", "", nil)
		time.Sleep(6 * time.Second)
		check("without a trunk", "no SIP trunk is active", nil)
		time.Sleep(30 * time.Second)
		check("half a minute later", "", nil)
		time.Sleep(30 * time.Second)
		check("with a silent trunk", `trunk=far reason="it does not answer OPTIONS"`, far)
	})
}
