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

// Results of an INVITE. A trunk to which no INVITE can be sent does not answer OPTIONS either.
const (
	answered = "answered"
	refused  = "refused"
	silent   = "silent"
)

var (
	standing = prometheus.NewDesc("ringfence_dialer_sip_trunk_up", "Whether the SIP trunk answers our OPTIONS: 0 after two in a row without an answer.", []string{"sip_trunk"}, nil)
	known    = prometheus.NewDesc("ringfence_dialer_sip_trunk_registered", "Whether the SIP trunk took our last REGISTER; of those that want one.", []string{"sip_trunk"}, nil)

	activeTrunks = prometheus.NewDesc("ringfence_dialer_sip_trunks_active",
		"Active SIP trunks, whether they answer or not. With 0, calls stay queued.", nil, nil)
)

func invitations() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_dialer_sip_invites_total", Help: "Calls offered to a SIP trunk, by its first word: answered, whatever it was; refused, for trouble of its own; or silent.",
	}, []string{"sip_trunk", "result"})
}

func refusals() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringfence_dialer_sip_refusals_total",
		Help: "Calls that a SIP trunk refused before the phone rang, by the SIP status of its response.",
	}, []string{"sip_trunk", "status"})
}

// invited counts a trunk's answer to an INVITE.
func (c *Carrier) invited(over trunks.Trunk, said error) {
	c.tended.care(over.TrunkID).heard(said)
	if errors.Is(said, carrier.ErrNotPermitted) { // the trunk's response is not its last word
		return
	}
	result := answered
	var no *carrier.Refused
	var response *Response
	if errors.As(said, &response) {
		c.refusals.WithLabelValues(over.Name, strconv.Itoa(response.Status)).Inc()
	}
	switch {
	case said == nil:
	case !errors.As(said, &no):
		result = silent
	case no.NotSent: // a fault on this side
		return
	case no.OperatorFault, no.Cause.OfTrunk():
		result = refused
	}
	c.invites.WithLabelValues(over.Name, result).Inc()
}

// Describe implements prometheus.Collector.
func (c *Carrier) Describe(all chan<- *prometheus.Desc) {
	all <- standing
	all <- known
	all <- activeTrunks
	all <- circuitState
	all <- circuitOpened
	c.refusals.Describe(all)
	c.invites.Describe(all)
}

// Collect sends the metrics of each trunk.
func (c *Carrier) Collect(all chan<- prometheus.Metric) {
	c.invites.Collect(all)
	c.refusals.Collect(all)
	c.tended.mu.Lock()
	defer c.tended.mu.Unlock()
	if c.tended.all != nil { // the trunks were read
		all <- prometheus.MustNewConstMetric(activeTrunks, prometheus.GaugeValue, float64(len(c.tended.all)))
	}
	for _, one := range c.tended.all {
		one.collect(all)
		all <- prometheus.MustNewConstMetric(standing, prometheus.GaugeValue, number(one.upkeep.Up()), one.name)
		if registered, asked := one.upkeep.Registered(); asked {
			all <- prometheus.MustNewConstMetric(known, prometheus.GaugeValue, number(registered), one.name)
		}
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// tended are the trunks to which this process sends OPTIONS and REGISTER.
type tended struct {
	mu  sync.Mutex
	all map[uuid.UUID]*care
}

// tend starts the upkeep of new trunks, restarts that of changed ones, and ends that of trunks that
// are not active any more.
func (c *Carrier) tend(ctx context.Context) error {
	bounded, done := context.WithTimeout(ctx, patience)
	defer done()
	active, err := c.trunks.Active(bounded)
	if err != nil {
		return err
	}
	c.tended.mu.Lock()
	defer c.tended.mu.Unlock()
	if c.tended.all == nil {
		c.tended.all = map[uuid.UUID]*care{}
	}
	gone := map[uuid.UUID]bool{}
	for id := range c.tended.all {
		gone[id] = true
	}
	for _, t := range active {
		if old := c.tended.all[t.TrunkID]; old == nil || old.version != t.Version {
			c.tended.all[t.TrunkID] = c.lookAfter(ctx, t, old)
		}
		delete(gone, t.TrunkID)
	}
	for id := range gone {
		c.tended.all[id].stop()
		c.forget(c.tended.all[id].name)
		delete(c.tended.all, id)
	}
	return nil
}

// forget deletes the counters of a trunk's name.
func (c *Carrier) forget(name string) {
	c.invites.DeletePartialMatch(prometheus.Labels{"sip_trunk": name})
	c.refusals.DeletePartialMatch(prometheus.Labels{"sip_trunk": name})
}

// lookAfter starts the upkeep of a trunk. The new upkeep begins after the old one has ended,
// because the new registration must follow the removal of the old one.
func (c *Carrier) lookAfter(ctx context.Context, t trunks.Trunk, old *care) *care {
	one := &care{
		name: t.Name, version: t.Version, done: make(chan struct{}),
		circuit: circuitbreaker.New(c.cfg.CircuitFailures, c.cfg.CircuitRest),
	}
	cfg := sip.TrunkMonitorConfig{Name: t.Name, Probe: func(ctx context.Context) error {
		begun := time.Now()
		reply, err := c.agent.Options(ctx, wire(t))
		one.state.probed(begun, time.Now(), reply.Status, err)
		return err
	}}
	if t.Register {
		cfg.Register = func(ctx context.Context, expires time.Duration) (time.Duration, error) {
			granted, err := c.agent.Register(ctx, wire(t), expires)
			one.state.registered(time.Now(), granted, err)
			return granted, err
		}
	}
	one.upkeep = sip.NewTrunkMonitor(cfg)
	if old != nil && old.name != t.Name {
		c.forget(old.name)
	}
	for _, result := range []string{answered, refused, silent} {
		c.invites.WithLabelValues(t.Name, result)
	}
	ctx, one.stop = context.WithCancel(ctx)
	go func() {
		defer close(one.done)
		if old != nil {
			old.stop()
			<-old.done
		}
		_ = one.upkeep.Run(ctx) // ends with ctx
	}()
	return one
}

// untend stops OPTIONS and REGISTER for all trunks, and waits until the registrations are removed.
func (c *Carrier) untend() {
	c.tended.mu.Lock()
	all := c.tended.all
	c.tended.all = nil
	c.tended.mu.Unlock()
	for _, one := range all {
		one.stop()
	}
	for _, one := range all {
		<-one.done
	}
}
