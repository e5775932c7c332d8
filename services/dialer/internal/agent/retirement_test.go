package agent_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/store"
)

func TestWarnRetiringModels_LogsModelsThatAreShutDownSoon(t *testing.T) {
	t.Parallel()
	configured := []agent.ConfiguredModel{
		{Variable: "REALTIME_MODEL", Model: "gpt-realtime"},
		{Variable: "SUMMARY_MODEL", Model: "gpt-6-luna"},
		{Variable: "REALTIME_TRANSCRIPTION_MODEL", Model: "whisper-1"},
	}
	tests := []struct {
		name string
		now  time.Time
		want []string
	}{
		{name: "61 days before the first shutdown", now: time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC)},
		{
			name: "60 days before the first shutdown", now: time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC),
			want: []string{"REALTIME_MODEL"},
		},
		{
			name: "after both shutdowns", now: time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC),
			want: []string{"REALTIME_MODEL", "REALTIME_TRANSCRIPTION_MODEL"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			agent.WarnRetiringModels(t.Context(), slog.New(slog.NewJSONHandler(&out, nil)), configured, tt.now)
			var got []string
			for line := range bytes.Lines(out.Bytes()) {
				var entry struct{ Level, Msg, Variable, Successor string }
				if err := json.Unmarshal(line, &entry); err != nil {
					t.Fatalf("read log line %s: %v", line, err)
				}
				if entry.Level != "WARN" {
					t.Errorf("level = %s, want WARN", entry.Level)
				}
				if entry.Msg != "configured model has a shutdown date" {
					t.Errorf("message = %q, want %q", entry.Msg, "configured model has a shutdown date")
				}
				if entry.Successor == "" {
					t.Errorf("successor of %s is empty", entry.Variable)
				}
				got = append(got, entry.Variable)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("warned variables (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRetirementMonitor_PublishesShutdownDatesOfModelsInUse(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	st := store.New(pool, uuid.New(), store.Timing{})
	save := func(settings string, deleted bool) {
		t.Helper()
		const insert = `
INSERT INTO agents (agent_id, workspace_id, version, name, from_e164, max_call_seconds, settings, deleted)
VALUES ($1, $2, 1, 'Ada', '', 60, $3, $4)`
		if _, err := pool.Exec(t.Context(), insert, uuid.New(), uuid.New(), settings, deleted); err != nil {
			t.Fatalf("insert agent with %s: %v", settings, err)
		}
	}
	save(`{"kind":"openai_realtime","model":"gpt-realtime-mini"}`, false)
	save(`{"kind":"openai_realtime","model":"gpt-realtime-mini","summary":{"model":"gpt-4o-mini"}}`, false)
	save(`{"kind":"openai_realtime","model":"llama-voice"}`, false)
	save(`{"kind":"openai_realtime","model":"gpt-realtime"}`, true)
	save(`{"kind":"scripted"}`, false)

	registry := prometheus.NewPedanticRegistry()
	monitor := agent.NewRetirementMonitor(
		st.AgentModels,
		[]agent.ConfiguredModel{{Variable: "REALTIME_MODEL", Model: "gpt-realtime-2.1"},
			{Variable: "SUMMARY_MODEL", Model: "gpt-4.1"}},
		registry,
	)
	if err := monitor.Update(t.Context()); err != nil {
		t.Fatalf("Update: %v", err)
	}
	want := map[string]float64{
		"gpt-realtime-2.1":  math.Inf(1),
		"gpt-4.1":           float64(time.Date(2027, 1, 14, 0, 0, 0, 0, time.UTC).Unix()),
		"gpt-4o-mini":       float64(time.Date(2027, 1, 14, 0, 0, 0, 0, time.UTC).Unix()),
		"gpt-realtime-mini": float64(time.Date(2027, 1, 20, 0, 0, 0, 0, time.UTC).Unix()),
	}
	if diff := cmp.Diff(want, published(t, registry)); diff != "" {
		t.Errorf("metric by model (-want +got):\n%s", diff)
	}

	// After this, no agent uses the model, so the metric must not contain it.
	if _, err := pool.Exec(t.Context(), `UPDATE agents SET deleted = true`); err != nil {
		t.Fatal(err)
	}
	if err := monitor.Update(t.Context()); err != nil {
		t.Fatalf("Update: %v", err)
	}
	delete(want, "gpt-4o-mini")
	delete(want, "gpt-realtime-mini")
	if diff := cmp.Diff(want, published(t, registry)); diff != "" {
		t.Errorf("metric by model after the agents were deleted (-want +got):\n%s", diff)
	}
}

func published(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatalf("gather metrics: %v", err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				values[label.GetValue()] = metric.GetGauge().GetValue()
			}
		}
	}
	return values
}
