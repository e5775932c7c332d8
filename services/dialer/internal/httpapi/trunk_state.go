package httpapi

import (
	"context"
	"log/slog"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/dialer/internal/replicas"
	"ringfence.dev/services/dialer/internal/trunks"
)

type trunkState struct {
	trunkCondition
	ChannelsInUse int           `json:"channels_in_use"`
	Replicas      []replicaView `json:"replicas"`
}

// trunkCondition is the state of a trunk, either in one process or in all processes together.
type trunkCondition struct {
	State            replicas.State     `json:"state"`
	CircuitOpenUntil *openapi.Timestamp `json:"circuit_open_until"`
	Registered       *bool              `json:"registered"`
	RegisteredUntil  *openapi.Timestamp `json:"registered_until"`
	RegisterError    *string            `json:"register_error"`
	LastAnswer       *answerView        `json:"last_answer"`
	OptionsError     *string            `json:"options_error"`
	Recent           recentView         `json:"recent"`
}

type answerView struct {
	At              openapi.Timestamp `json:"at"`
	Status          int               `json:"status"`
	RoundTripMillis int64             `json:"round_trip_ms"`
}

// recentView contains the number of calls that were offered to a trunk in the last five minutes,
// and how many of them failed.
type recentView struct {
	Calls     int     `json:"calls"`
	Failures  int     `json:"failures"`
	ErrorRate float64 `json:"error_rate"`
}

type replicaView struct {
	Replica    string            `json:"replica"`
	ReportedAt openapi.Timestamp `json:"reported_at"`
	trunkCondition
}

func viewCondition(t replicas.Trunk) trunkCondition {
	seen := trunkCondition{
		State: t.State, CircuitOpenUntil: openapi.TimestampOrNull(t.OpenUntil), Registered: t.Registered,
		RegisteredUntil: openapi.TimestampOrNull(t.RegisteredUntil), RegisterError: nilIfEmpty(t.RegisterError),
		OptionsError: nilIfEmpty(
			t.OptionsError,
		), Recent: recentView{Calls: t.Recent.Calls, Failures: t.Recent.Failures},
	}
	if a := t.LastAnswer; a != nil {
		seen.LastAnswer = &answerView{
			At:              openapi.TimestampOf(a.At),
			Status:          a.Status,
			RoundTripMillis: a.RoundTripMillis,
		}
	}
	if t.Recent.Calls > 0 {
		seen.Recent.ErrorRate = float64(t.Recent.Failures) / float64(t.Recent.Calls)
	}
	return seen
}

type trunkStates struct {
	reports []replicas.StoredReport
	live    map[uuid.UUID]int
}

// readStates reads the states of trunks. If it cannot read the reports, the state of each trunk is
// unknown. It returns no error, because a client must not receive a 500 after its change was
// stored.
func (a *API) readStates(ctx context.Context) trunkStates {
	reports, err := a.replicas.List(ctx)
	if err != nil {
		slog.ErrorContext(ctx, "status reports of the dialer replicas not read", "error", err)
	}
	live, err := a.replicas.Channels(ctx)
	if err != nil {
		slog.ErrorContext(ctx, "live calls of the trunks not counted", "error", err)
	}
	return trunkStates{reports: reports, live: live}
}

// viewTrunk returns the response about a trunk. After a change of its settings, the state is
// unknown until the reports contain the new version.
func (s trunkStates) viewTrunk(t trunks.Trunk) trunkView {
	seen := replicas.OfTrunk(s.reports, t.TrunkID, t.Version)
	merged := replicas.Merge(seen)
	if t.Status == trunks.Disabled {
		merged, seen = replicas.Trunk{State: replicas.Disabled}, nil
	}
	shown := viewTrunk(t)
	shown.trunkState = trunkState{
		trunkCondition: viewCondition(merged), ChannelsInUse: s.live[t.TrunkID], Replicas: make([]replicaView, 0, len(seen)),
	}
	for _, one := range seen {
		shown.Replicas = append(shown.Replicas, replicaView{
			Replica: one.Replica, ReportedAt: openapi.TimestampOf(one.ReportedAt), trunkCondition: viewCondition(one.Trunk),
		})
	}
	return shown
}
