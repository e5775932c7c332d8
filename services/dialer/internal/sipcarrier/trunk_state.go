package sipcarrier

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/circuitbreaker"
	"ringfence.dev/services/dialer/internal/replicas"
)

// recentMinutes is the length, in minutes, of the period for which replicas.Recent counts calls.
const recentMinutes = 5

// trunkState contains data about a trunk that only operators see. The state of the monitor and of
// the circuit is stored elsewhere. The zero value is ready to use.
type trunkState struct {
	mu              sync.Mutex
	answer          *replicas.Answer
	optionsError    string
	registerError   string
	registeredUntil time.Time
	minutes         [recentMinutes]minute
}

// minute counts the calls that were offered to a trunk in one minute. at is the minute, as the
// number of minutes since 1970.
type minute struct {
	at int64
	replicas.Recent
}

func (s *trunkState) probed(start, now time.Time, status int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.optionsError = ""
	if err != nil {
		s.optionsError = err.Error()
	}
	if status != 0 {
		s.answer = &replicas.Answer{At: now.UTC(), Status: status, RoundTripMillis: now.Sub(start).Milliseconds()}
	}
}

func (s *trunkState) registered(now time.Time, granted time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registerError = ""
	if err != nil {
		s.registerError = err.Error()
		return
	}
	s.registeredUntil = now.Add(granted).UTC()
}

func (s *trunkState) offered(now time.Time, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := now.Unix() / 60
	m := &s.minutes[at%recentMinutes]
	if m.at != at {
		*m = minute{at: at}
	}
	m.Calls++
	if failed {
		m.Failures++
	}
}

// countRecent returns the numbers of calls in this minute and the four minutes before.
func (s *trunkState) countRecent(now time.Time) (sum replicas.Recent) {
	for _, m := range s.minutes {
		if now.Unix()/60-m.at < recentMinutes {
			sum.Calls += m.Calls
			sum.Failures += m.Failures
		}
	}
	return sum
}

func (o *trunkHealth) replicaReport(trunkID uuid.UUID, now time.Time) replicas.Trunk {
	o.mu.Lock()
	open, rest := o.circuit.State() != circuitbreaker.Closed, o.circuit.Rest(now)
	o.mu.Unlock()
	o.state.mu.Lock()
	defer o.state.mu.Unlock()
	report := replicas.Trunk{
		TrunkID: trunkID, Version: o.version, State: replicas.Unknown, LastAnswer: o.state.answer,
		OptionsError: o.state.optionsError, RegisterError: o.state.registerError, Recent: o.state.countRecent(now),
	}
	switch {
	case !o.monitor.Up():
		report.State = replicas.Down
	case open:
		report.State = replicas.CircuitOpen
	case o.monitor.HasAnswered():
		report.State = replicas.Up
	}
	if rest > 0 {
		until := now.Add(rest).UTC()
		report.OpenUntil = &until
	}
	registered, configured := o.monitor.Registered()
	if !configured {
		return report
	}
	report.Registered = &registered
	if registered {
		until := o.state.registeredUntil
		report.RegisteredUntil = &until
	}
	return report
}

// Trunks returns the state of the monitored trunks in this process.
func (c *Carrier) Trunks() []replicas.Trunk {
	c.monitored.mu.Lock()
	defer c.monitored.mu.Unlock()
	all, now := make([]replicas.Trunk, 0, len(c.monitored.all)), time.Now()
	for id, one := range c.monitored.all {
		all = append(all, one.replicaReport(id, now))
	}
	return all
}
