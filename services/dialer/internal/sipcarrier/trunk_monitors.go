package sipcarrier

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/circuitbreaker"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/trunks"
)

// Values of the label `result` of the metric ringfence_dialer_sip_invites_total. A call without an
// INVITE is not counted.
const (
	resultAnswered = "answered"
	resultRefused  = "refused"
	resultSilent   = "silent"
)

var (
	trunkUp = prometheus.NewDesc("ringfence_dialer_sip_trunk_up",
		"1 while the SIP trunk answers OPTIONS, 0 after two requests in a row without an answer.",
		[]string{"sip_trunk"}, nil)
	trunkRegistered = prometheus.NewDesc("ringfence_dialer_sip_trunk_registered",
		"1 if the SIP trunk accepted the last REGISTER, otherwise 0. Only for trunks with register.",
		[]string{"sip_trunk"}, nil)

	activeTrunks = prometheus.NewDesc("ringfence_dialer_sip_trunks_active",
		"Active SIP trunks, including those that do not answer. With 0, calls stay queued.", nil, nil)
)

func newInvitesCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_dialer_sip_invites_total",
		Help: "Calls offered to a SIP trunk, by result: answered (any response about the call), " +
			"refused (a fault of the trunk or of the account) or silent (no response).",
	}, []string{"sip_trunk", "result"})
}

func newRefusalsCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_dialer_sip_refusals_total",
		Help: "Calls that a SIP trunk refused before the phone rang, by the SIP status of its response.",
	}, []string{"sip_trunk", "status"})
}

func (c *Carrier) countInvite(trunk trunks.Trunk, err error) {
	c.monitored.healthOf(trunk.TrunkID).countResult(err)
	// The trunk's response required another INVITE, for example with credentials. The other INVITE
	// was not permitted, so the call has no result.
	if errors.Is(err, carrier.ErrNotPermitted) {
		return
	}
	result := resultAnswered
	var no *carrier.Refused
	var response *Response
	if errors.As(err, &response) {
		c.refusals.WithLabelValues(trunk.Name, strconv.Itoa(response.Status)).Inc()
	}
	switch {
	case err == nil:
	case !errors.As(err, &no):
		result = resultSilent
	case no.NotSent: // the dialer caused this error
		return
	case no.OperatorFault, no.Cause.OfTrunk():
		result = resultRefused
	}
	c.invites.WithLabelValues(trunk.Name, result).Inc()
}

// Describe implements prometheus.Collector.
func (c *Carrier) Describe(all chan<- *prometheus.Desc) {
	all <- trunkUp
	all <- trunkRegistered
	all <- activeTrunks
	all <- circuitState
	all <- circuitOpened
	c.refusals.Describe(all)
	c.invites.Describe(all)
}

// Collect implements prometheus.Collector.
func (c *Carrier) Collect(all chan<- prometheus.Metric) {
	c.invites.Collect(all)
	c.refusals.Collect(all)
	c.monitored.mu.Lock()
	defer c.monitored.mu.Unlock()
	if c.monitored.all != nil { // nil until the trunks have been read
		all <- prometheus.MustNewConstMetric(activeTrunks, prometheus.GaugeValue, float64(len(c.monitored.all)))
	}
	for _, one := range c.monitored.all {
		one.collect(all)
		all <- prometheus.MustNewConstMetric(trunkUp, prometheus.GaugeValue, boolValue(one.monitor.Up()), one.name)
		if registered, configured := one.monitor.Registered(); configured {
			all <- prometheus.MustNewConstMetric(trunkRegistered, prometheus.GaugeValue, boolValue(registered), one.name)
		}
	}
}

func boolValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// monitoredTrunks contains the trunks to which this process sends OPTIONS and REGISTER.
type monitoredTrunks struct {
	mu  sync.Mutex
	all map[uuid.UUID]*trunkHealth
}

// updateMonitors starts the monitors of new trunks, restarts the monitors of changed trunks, and
// stops the monitors of trunks that are no longer active.
func (c *Carrier) updateMonitors(ctx context.Context) error {
	bounded, done := context.WithTimeout(ctx, journalTimeout)
	defer done()
	active, err := c.trunks.Active(bounded)
	if err != nil {
		return err
	}
	c.setTracedTrunks(active)
	c.monitored.mu.Lock()
	defer c.monitored.mu.Unlock()
	if c.monitored.all == nil {
		c.monitored.all = map[uuid.UUID]*trunkHealth{}
	}
	removed := map[uuid.UUID]bool{}
	for id := range c.monitored.all {
		removed[id] = true
	}
	for _, t := range active {
		if old := c.monitored.all[t.TrunkID]; old == nil || old.version != t.Version {
			c.monitored.all[t.TrunkID] = c.startMonitor(ctx, t, old)
		}
		delete(removed, t.TrunkID)
	}
	for id := range removed {
		c.monitored.all[id].stop()
		c.deleteMetrics(c.monitored.all[id].name)
		delete(c.monitored.all, id)
	}
	return nil
}

// setTracedTrunks sets the trunks whose messages are recorded. It must be called before the monitor
// of a new trunk sends its first message, so that the trace is complete.
func (c *Carrier) setTracedTrunks(active []trunks.Trunk) {
	if c.cfg.Trace == nil {
		return
	}
	var traced []uuid.UUID
	for _, t := range active {
		if t.Trace {
			traced = append(traced, t.TrunkID)
		}
	}
	c.cfg.Trace.Follow(traced)
}

// deleteMetrics deletes the counters of a trunk that was removed or renamed.
func (c *Carrier) deleteMetrics(name string) {
	c.invites.DeletePartialMatch(prometheus.Labels{"sip_trunk": name})
	c.refusals.DeletePartialMatch(prometheus.Labels{"sip_trunk": name})
}

// startMonitor starts the monitor of a trunk. The monitor with the old settings must end first: it
// removes its registration, and must not remove the new one.
func (c *Carrier) startMonitor(ctx context.Context, t trunks.Trunk, old *trunkHealth) *trunkHealth {
	one := &trunkHealth{
		name: t.Name, version: t.Version, done: make(chan struct{}),
		circuit: circuitbreaker.New(c.cfg.CircuitFailures, c.cfg.CircuitRest),
	}
	cfg := sip.TrunkMonitorConfig{Name: t.Name, Probe: func(ctx context.Context) error {
		begun := time.Now()
		reply, err := c.agent.Options(ctx, sipTrunk(t))
		one.state.probed(begun, time.Now(), reply.Status, err)
		return err
	}}
	if t.Register {
		cfg.Register = func(ctx context.Context, expires time.Duration) (time.Duration, error) {
			granted, err := c.agent.Register(ctx, sipTrunk(t), expires)
			one.state.registered(time.Now(), granted, err)
			return granted, err
		}
	}
	one.monitor = sip.NewTrunkMonitor(cfg)
	if old != nil && old.name != t.Name {
		c.deleteMetrics(old.name)
	}
	for _, result := range []string{resultAnswered, resultRefused, resultSilent} {
		c.invites.WithLabelValues(t.Name, result)
	}
	ctx, one.stop = context.WithCancel(ctx)
	go func() {
		defer close(one.done)
		if old != nil {
			old.stop()
			<-old.done
		}
		_ = one.monitor.Run(ctx) // always nil after ctx ends
	}()
	return one
}

// stopMonitors stops sending OPTIONS and REGISTER to all trunks, and waits until the registrations
// are removed.
func (c *Carrier) stopMonitors() {
	c.monitored.mu.Lock()
	all := c.monitored.all
	c.monitored.all = nil
	c.monitored.mu.Unlock()
	for _, one := range all {
		one.stop()
	}
	for _, one := range all {
		<-one.done
	}
}
