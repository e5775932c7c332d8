package sipcarrier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/circuitbreaker"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/trunks"
)

// Response is the final response with which a trunk refused an INVITE.
type Response struct {
	Trunk  string
	Status int
	Reason string
}

func (r *Response) Error() string {
	return fmt.Sprintf("trunk %q answered %d %s before the phone rang", r.Trunk, r.Status, r.Reason)
}

// trunkHealth is the state of one version of a trunk in this process. After a change, a trunk gets
// a new trunkHealth with a closed circuit. A nil trunkHealth means that the trunk is not monitored
// yet.
type trunkHealth struct {
	name    string
	version int64
	monitor *sip.TrunkMonitor
	stop    context.CancelFunc
	done    chan struct{} // closed when the registration was removed
	state   trunkState

	mu      sync.Mutex
	circuit *circuitbreaker.Breaker
	// accepted is true if the trunk has accepted a call since its last change, which proves that its
	// credentials are right.
	accepted  bool
	forbidden forbiddenCounter
	opened    int
}

// isOperatorFault reports whether a refusal is a fault that the operator must correct: a 401, a
// 407, or a 403 that the operator's account can have caused. It counts each 403.
func (o *trunkHealth) isOperatorFault(end sip.End, order carrier.Originate) bool {
	if !end.OtherTrunkAllowed {
		return false
	}
	switch end.Status {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return true
	case http.StatusForbidden:
		if o == nil {
			return false
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		times := o.forbidden.countForbidden(order)
		return o.forbidden.suspectsAccount(o.accepted) || !o.accepted && times <= maxReleases
	}
	return false
}

// isAccountSuspected reports whether the operator's account can be the reason of a refusal: a 403
// from a trunk that has accepted no call since its last change. If isOperatorFault returned false
// for the same refusal, the call request ends, and its error names the account.
func (o *trunkHealth) isAccountSuspected(end sip.End) bool {
	if o == nil || !end.OtherTrunkAllowed || end.Status != http.StatusForbidden {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.accepted
}

// usableChannels returns how many concurrent calls the trunk may have now, including the live
// calls. While the circuit is half-open, one new call is permitted.
func (o *trunkHealth) usableChannels(t trunks.Trunk, live int, now time.Time) (maxCalls int, usable bool) {
	maxCalls, live = int(t.Channels), min(live, int(t.Channels))
	if o == nil {
		return live, false // until the trunk answers OPTIONS, no call is offered to it
	}
	if !o.monitor.HasAnswered() {
		return live, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.circuit.Try(now)
	switch {
	case o.circuit.State() == circuitbreaker.Closed:
		return maxCalls, true
	case o.circuit.State() == circuitbreaker.Open || o.circuit.Probing():
		return live, false
	}
	return min(maxCalls, live+1), true
}

// isUnavailable reports whether no call may be offered to the trunk: it has not answered OPTIONS,
// its circuit is open, or a test call is in progress.
func (o *trunkHealth) isUnavailable() bool {
	if o == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.monitor.HasAnswered() || o.circuit.State() == circuitbreaker.Open || o.circuit.Probing()
}

// reserveCall reserves one call of a workspace in the circuit. It returns false if the circuit
// permits no call. Otherwise the caller must later call countResult or cancelReservation.
func (o *trunkHealth) reserveCall(workspaceID uuid.UUID) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forbidden.addCaller(workspaceID)
	_, ok := o.circuit.Allow()
	return ok
}

// cancelReservation cancels a reservation for a call that was not offered to the trunk.
func (o *trunkHealth) cancelReservation() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.circuit.CancelTest()
}

func (o *trunkHealth) countUnreachable(fault error) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state.offered(time.Now(), true)
	o.accepted = false
	o.countFailure(fault, true)
}

// countResult counts the trunk's response to an INVITE. result is nil if the trunk accepted the
// call, and a *carrier.Refused if the trunk refused it. Any other error means that the trunk did
// not respond.
func (o *trunkHealth) countResult(result error) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var refused *carrier.Refused
	// The trunk did not cause this error, so it is not counted.
	if errors.Is(result, carrier.ErrNotPermitted) || errors.As(result, &refused) && refused.NotSent {
		o.circuit.CancelTest()
		return
	}
	o.state.offered(time.Now(), isTrunkFault(result))
	switch {
	case result == nil:
		o.countAccepted()
	case !errors.As(result, &refused):
		o.monitor.ProbeNow()
		o.countFailure(result, false)
		return
	case isForbidden(refused):
		if refused.OperatorFault && o.forbidden.suspectsAccount(o.accepted) {
			o.accepted = false
			o.countFailure(result, true)
			return
		}
	case refused.OperatorFault:
		o.accepted = false
		o.countFailure(result, true)
		return
	case refused.Cause.OfTrunk():
		o.countFailure(result, false)
		return
	default:
		o.countAccepted()
	}
	if o.circuit.Succeeded() {
		slog.Info("SIP trunk circuit breaker closed", "trunk", o.name)
	}
}

// isTrunkFault reports whether the trunk caused the failure of a call: it did not respond, it
// refused the operator's account, or it has a fault.
func isTrunkFault(result error) bool {
	var refused *carrier.Refused
	if !errors.As(result, &refused) {
		return result != nil
	}
	return refused.OperatorFault || refused.Cause.OfTrunk()
}

// countAccepted records that the trunk works: it accepted a call, or refused one because of the
// callee. The caller must hold mu.
func (o *trunkHealth) countAccepted() {
	o.accepted = true
	o.forbidden.clear()
}

func isForbidden(refused *carrier.Refused) bool {
	var response *Response
	return errors.As(refused, &response) && response.Status == http.StatusForbidden
}

// countFailure counts a failure in the circuit. If definite is true, the failure opens the circuit
// immediately. The caller must hold mu.
func (o *trunkHealth) countFailure(err error, definite bool) {
	if o.circuit.Failed(time.Now(), definite) {
		o.opened++
		slog.Warn("SIP trunk circuit breaker opened", "trunk", o.name, "open_for", o.circuit.Rest(time.Now()), "error", err)
	}
}

// healthOf returns the state of a trunk, or nil if the trunk is not monitored yet.
func (t *monitoredTrunks) healthOf(id uuid.UUID) *trunkHealth {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[id]
}

// Limit returns the channels and calls per second of all trunks that can take calls now, or zeros
// if there is no such trunk. A paused trunk has only the channels of its live calls.
func (c *Carrier) Limit(ctx context.Context) (dialqueue.Limit, error) {
	active, err := c.trunks.Active(ctx)
	if err != nil {
		return dialqueue.Limit{}, err
	}
	live, err := c.legStore.Channels(ctx)
	if err != nil {
		return dialqueue.Limit{}, err
	}
	var sum dialqueue.Limit
	for _, t := range active {
		if !c.cfg.Pauses.MayUse(ctx, t.TrunkID) {
			sum.Live += live[t.TrunkID]
			continue
		}
		channels, usable := c.monitored.healthOf(t.TrunkID).usableChannels(t, live[t.TrunkID], time.Now())
		sum.Live += channels
		if usable {
			sum.PerSecond += int(t.CallsPerSecond)
		}
	}
	if sum.PerSecond == 0 {
		c.idle.warn(ctx, active, c.monitored.healthOf)
		return dialqueue.Limit{}, nil
	}
	return sum, nil
}

// idleLog limits how often the dialer logs that no trunk can take calls: once per idleLogInterval.
type idleLog struct {
	mu     sync.Mutex
	warned time.Time
}

// idleLogInterval is the time between two log messages that no trunk can take calls. A new process
// logs no such message before startupDelay, because the trunks have not answered OPTIONS yet.
const idleLogInterval, startupDelay = time.Minute, 5 * time.Second

func (i *idleLog) warn(ctx context.Context, active []trunks.Trunk, known func(uuid.UUID) *trunkHealth) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	if i.warned.IsZero() { // first check of this process
		i.warned = now.Add(startupDelay - idleLogInterval)
	}
	if now.Sub(i.warned) < idleLogInterval {
		return
	}
	i.warned = now
	if len(active) == 0 {
		slog.WarnContext(ctx, "no SIP trunk is active: calls stay queued; add one with POST /admin/v1/trunks")
		return
	}
	for _, t := range active {
		slog.WarnContext(ctx, "no SIP trunk can take calls: calls stay queued", "trunk", t.Name,
			"reason", known(t.TrunkID).reason())
	}
}

func (o *trunkHealth) reason() string {
	if o == nil || !o.monitor.HasAnswered() {
		return "it does not answer OPTIONS"
	}
	return "its circuit is open"
}

var (
	circuitState = prometheus.NewDesc("ringfence_dialer_circuit_state",
		"1 for the current state of the trunk's circuit, 0 for the other states.", []string{"trunk", "state"}, nil)
	circuitOpened = prometheus.NewDesc("ringfence_dialer_circuit_opened_total",
		"Times that the circuit of the trunk opened.", []string{"trunk"}, nil)
)

func (o *trunkHealth) collect(all chan<- prometheus.Metric) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, state := range []circuitbreaker.State{circuitbreaker.Closed, circuitbreaker.HalfOpen, circuitbreaker.Open} {
		is := boolValue(state == o.circuit.State())
		all <- prometheus.MustNewConstMetric(circuitState, prometheus.GaugeValue, is, o.name, string(state))
	}
	all <- prometheus.MustNewConstMetric(circuitOpened, prometheus.CounterValue, float64(o.opened), o.name)
}
