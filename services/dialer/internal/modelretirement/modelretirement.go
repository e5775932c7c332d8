// Package modelretirement warns operators before OpenAI shuts down a model that the dialer uses.
package modelretirement

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/aimodel"
	"ringfence.dev/services/dialer/internal/store"
)

// refreshInterval is the time between two looks at the models of the agents. Shutdowns are
// announced in days.
const refreshInterval = 5 * time.Minute

// Configured is a model that the configuration names, for agents that name none.
type Configured struct{ Variable, Model string }

// Warn logs a warning for each configured model that OpenAI has shut down, or shuts down within
// aimodel.NoticePeriod of now.
func Warn(ctx context.Context, log *slog.Logger, configured []Configured, now time.Time) {
	for _, c := range configured {
		retirement, known := aimodel.RetirementOf(c.Model)
		if !known || !retirement.Due(now) {
			continue
		}
		log.WarnContext(ctx, "configured model retires",
			"variable", c.Variable, "model", c.Model, "retires", retirement.At.Format(time.DateOnly), "successor",
			retirement.Successor)
	}
}

// Monitor publishes when the models in use retire. Every replica publishes the same values.
type Monitor struct {
	store      *store.Store
	configured []Configured
	retires    *prometheus.GaugeVec
}

// New registers the metric with metrics.
func New(st *store.Store, configured []Configured, metrics prometheus.Registerer) *Monitor {
	m := &Monitor{store: st, configured: configured, retires: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ringfence_dialer_model_retires_timestamp_seconds",
		Help: "When OpenAI shuts down a model in use. Models of the configuration without an announced shutdown are +Inf; " +
			"those of agents are left out.",
	}, []string{"model"})}
	metrics.MustRegister(m.retires)
	return m
}

// Run updates the metric until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for {
		if err := m.Update(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "models in use not read", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Update reads the models in use and sets the metric. If the database does not answer, the metric
// keeps its values.
func (m *Monitor) Update(ctx context.Context) error {
	named, err := m.store.AgentModels(ctx)
	if err != nil {
		return err
	}
	m.retires.Reset()
	for _, c := range m.configured {
		m.retires.WithLabelValues(c.Model).Set(math.Inf(1))
		named = append(named, c.Model)
	}
	for _, model := range named {
		if retirement, known := aimodel.RetirementOf(model); known {
			m.retires.WithLabelValues(retirement.Model).Set(float64(retirement.At.Unix()))
		}
	}
	return nil
}
