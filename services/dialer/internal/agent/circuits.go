package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/dialer/internal/circuitbreaker"
	"ringfence.dev/services/dialer/internal/replicas"
)

// Address identifies a server of models or agents, for one kind of agent. WorkspaceID is uuid.Nil
// for the operator's model.
type Address struct {
	WorkspaceID uuid.UUID
	Kind, URL   string
}

// AddressOf returns the address to which an agent of a workspace connects. ok is false for a
// scripted agent, which connects to no server.
func AddressOf(workspaceID uuid.UUID, kind, baseURL, mediaURL string) (a Address, ok bool) {
	a = Address{WorkspaceID: workspaceID, Kind: kind, URL: baseURL}
	if kind == MediaWS {
		a.URL = mediaURL
	}
	if a.URL == "" {
		a.WorkspaceID = uuid.Nil
	}
	return a, kind != "" && kind != Scripted
}

// OwnedByWorkspace reports whether an agent uses a model of its workspace, and not the operator's
// model.
func OwnedByWorkspace(kind, baseURL, mediaURL string) bool {
	a, ok := AddressOf(uuid.Max, kind, baseURL, mediaURL)
	return ok && a.WorkspaceID != uuid.Nil
}

func (a Address) owner() string {
	if a.WorkspaceID == uuid.Nil {
		return "operator"
	}
	return "workspace"
}

// Circuits contains a circuit breaker for each address of agents, in this process. If an address
// fails repeatedly, its circuit breaker stops new calls to this address for a while. Circuits is
// safe for concurrent use.
type Circuits struct {
	failures int
	openTime time.Duration

	mu  sync.Mutex
	all map[Address]*circuitbreaker.Breaker // only addresses that have failed since their last success
}

// NewCircuits returns circuit breakers that open after the given number of consecutive failures of
// an address. A circuit breaker stays open for openTime. Each failed test call doubles this time.
func NewCircuits(failures int, openTime time.Duration) *Circuits {
	return &Circuits{failures: failures, openTime: openTime, all: map[Address]*circuitbreaker.Breaker{}}
}

// probePause is how long other calls to an address must wait while one call tests whether the
// address works again.
const probePause = 500 * time.Millisecond

// Allow returns the time that a call to the address must wait, or 0. The caller must call done at
// the end of the attempt.
func (c *Circuits) Allow(a Address) (done func(), wait time.Duration) {
	nothing := func() {}
	if c == nil {
		return nothing, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b, now := c.all[a], time.Now()
	if b == nil {
		return nothing, 0
	}
	if wait := b.Rest(now); wait > 0 {
		return nothing, wait
	}
	b.Try(now)
	probe, ok := b.Allow()
	switch {
	case !ok:
		return nothing, probePause
	case !probe:
		return nothing, 0
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		b.CancelTest()
	}, 0
}

// Watch returns an Opener that opens sessions with next and records each result in the circuit
// breaker of the address.
func (c *Circuits) Watch(next Opener) Opener { return watchedOpener{c, next} }

type watchedOpener struct {
	circuits *Circuits
	next     Opener
}

// If a call ends while its session is being opened, the opening is canceled. This counts as a
// failure of the address only if the opening has lasted at least slowOpen.
const slowOpen = 3 * time.Second

func (w watchedOpener) Open(ctx context.Context, spec Spec) (Session, error) {
	start := time.Now()
	session, err := w.next.Open(ctx, spec)
	a, ok := AddressOf(spec.WorkspaceID, spec.Settings.Kind, spec.Settings.BaseURL, spec.Settings.MediaURL)
	if ok && (!errors.Is(ctx.Err(), context.Canceled) || time.Since(start) >= slowOpen) {
		w.circuits.record(a, err)
	}
	return session, err
}

func (c *Circuits) record(a Address, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.all[a]
	if err == nil {
		if b != nil && b.Succeeded() {
			slog.Info("AI agent circuit breaker closed", "kind", a.Kind, "owner", a.owner(), "workspace_id", a.WorkspaceID)
		}
		if b != nil && b.State() == circuitbreaker.Closed {
			delete(c.all, a)
		}
		return
	}
	if b == nil {
		b = circuitbreaker.New(c.failures, c.openTime)
		c.all[a] = b
	}
	if b.Failed(time.Now(), false) {
		slog.Warn("AI agent circuit breaker opened", "kind", a.Kind, "owner", a.owner(), "workspace_id", a.WorkspaceID,
			"open_for", b.Rest(time.Now()), "error", err)
	}
}

// Open returns the addresses whose circuit breaker is open or half-open.
func (c *Circuits) Open() []replicas.AgentCircuit {
	c.mu.Lock()
	defer c.mu.Unlock()
	var open []replicas.AgentCircuit
	for a, b := range c.all {
		if b.State() == circuitbreaker.Closed {
			continue
		}
		one := replicas.AgentCircuit{Kind: a.Kind}
		if a.WorkspaceID != uuid.Nil {
			one.WorkspaceID = &a.WorkspaceID
		}
		if wait := b.Rest(time.Now()); wait > 0 {
			until := time.Now().Add(wait).UTC()
			one.OpenUntil = &until
		}
		open = append(open, one)
	}
	return open
}

var openCircuits = prometheus.NewDesc("ringfence_dialer_agent_circuits_open",
	"Addresses of AI agents with an open circuit breaker, by kind and by owner of the model.",
	[]string{"kind", "owner"}, nil)

// Describe implements prometheus.Collector.
func (c *Circuits) Describe(all chan<- *prometheus.Desc) { all <- openCircuits }

// Collect implements prometheus.Collector.
func (c *Circuits) Collect(all chan<- prometheus.Metric) {
	type label struct{ kind, owner string }
	open := map[label]int{}
	for _, kind := range []string{Realtime, Live} {
		open[label{kind, "operator"}], open[label{kind, "workspace"}] = 0, 0
	}
	open[label{MediaWS, "workspace"}] = 0
	c.mu.Lock()
	for a, b := range c.all {
		if b.State() != circuitbreaker.Closed {
			open[label{a.Kind, a.owner()}]++
		}
	}
	c.mu.Unlock()
	for l, n := range open {
		all <- prometheus.MustNewConstMetric(openCircuits, prometheus.GaugeValue, float64(n), l.kind, l.owner)
	}
}
