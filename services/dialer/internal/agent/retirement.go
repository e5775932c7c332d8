package agent

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/aimodel"
)

// retirementInterval is the time between two reads of the models that agents use.
const retirementInterval = 5 * time.Minute

// ConfiguredModel is a default model, and the environment variable that sets it. Agents without a
// model use the default model.
type ConfiguredModel struct{ Variable, Model string }

// WarnRetiringModels logs a warning for each configured model that OpenAI has shut down, or will
// shut down within aimodel.NoticePeriod.
func WarnRetiringModels(ctx context.Context, log *slog.Logger, configured []ConfiguredModel, now time.Time) {
	for _, c := range configured {
		retirement, known := aimodel.RetirementOf(c.Model)
		if !known || !retirement.Due(now) {
			continue
		}
		log.WarnContext(ctx, "configured model has a shutdown date",
			"variable", c.Variable, "model", c.Model, "shutdown_date", retirement.At.Format(time.DateOnly), "successor",
			retirement.Successor)
	}
}

// RetirementMonitor publishes a metric with the shutdown dates of the models in use. Every replica
// publishes the same values, because all replicas read the same database.
type RetirementMonitor struct {
	agentModels func(context.Context) ([]string, error)
	configured  []ConfiguredModel
	retires     *prometheus.GaugeVec
}

// NewRetirementMonitor registers the metric. agentModels returns the models that are named in the
// settings of agents.
func NewRetirementMonitor(
	agentModels func(context.Context) ([]string, error), configured []ConfiguredModel, metrics prometheus.Registerer,
) *RetirementMonitor {
	m := &RetirementMonitor{
		agentModels: agentModels,
		configured:  configured,
		retires: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringfence_dialer_model_retires_timestamp_seconds",
			Help: "Time at which OpenAI shuts down a model in use. It is +Inf for a configured model without an announced " +
				"shutdown. A model that only agents use has no value until its shutdown is announced.",
		}, []string{"model"}),
	}
	metrics.MustRegister(m.retires)
	return m
}

// Run updates the metric until ctx ends.
func (m *RetirementMonitor) Run(ctx context.Context) error {
	ticker := time.NewTicker(retirementInterval)
	defer ticker.Stop()
	for {
		if err := m.Update(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "models that agents use could not be read", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Update reads the models in use and sets the metric. If the database cannot be read, the metric
// keeps its values.
func (m *RetirementMonitor) Update(ctx context.Context) error {
	named, err := m.agentModels(ctx)
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
