package httpapi

import (
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/replicas"
)

type dialerView struct {
	Replicas      []processView      `json:"replicas"`
	AgentCircuits []agentCircuitView `json:"agent_circuits"`
	Queue         queueView          `json:"queue"`
	Pauses        []pauseView        `json:"pauses"`
}

// pauseView is a scope whose dialing is paused now. ID is null if all dialing is paused.
// WorkspaceID is null unless a workspace or an agent is paused.
type pauseView struct {
	Level       dialqueue.PauseLevel `json:"level"`
	ID          *uuid.UUID           `json:"id"`
	WorkspaceID *uuid.UUID           `json:"workspace_id"`
	openapi.Dialing
}

// maxPauses is the highest number of pauses in the response.
const maxPauses = 100

type processView struct {
	Replica    string            `json:"replica"`
	ReportedAt openapi.Timestamp `json:"reported_at"`
	// SIP is null if the carrier is simulated.
	SIP *replicas.SIP `json:"sip"`
}

// agentCircuitView is the open circuit of one process for an address of AI agents.
type agentCircuitView struct {
	Replica     string             `json:"replica"`
	Kind        string             `json:"kind"`
	WorkspaceID *uuid.UUID         `json:"workspace_id"`
	OpenUntil   *openapi.Timestamp `json:"open_until"`
}

// Due, Paused and Scheduled are counted only up to 10,000. Due does not include paused requests.
type queueView struct {
	Due              int64   `json:"due"`
	Paused           int64   `json:"paused"`
	Scheduled        int64   `json:"scheduled"`
	OldestDueSeconds float64 `json:"oldest_due_seconds"`
	LiveOutbound     int64   `json:"live_outbound"`
	LiveInbound      int64   `json:"live_inbound"`
}

// readDialer handles GET /admin/v1/dialer.
func (a *API) readDialer(w http.ResponseWriter, r *http.Request) error {
	reports, err := a.replicas.List(r.Context())
	if err != nil {
		return err
	}
	waiting, err := a.replicas.Queue(r.Context())
	if err != nil {
		return err
	}
	paused, err := a.store.PausedScopes(r.Context(), maxPauses)
	if err != nil {
		return err
	}
	answer := dialerView{Replicas: []processView{}, AgentCircuits: []agentCircuitView{}, Queue: queueView{
		Due: waiting.Due, Paused: waiting.Paused, Scheduled: waiting.Ahead, OldestDueSeconds: waiting.OldestDueSeconds,
		LiveOutbound: waiting.Outbound, LiveInbound: waiting.Inbound,
	}, Pauses: make([]pauseView, 0, len(paused))}
	for _, state := range paused {
		view := pauseView{
			Level: state.Level, WorkspaceID: state.WorkspaceID, Dialing: viewDialing(state.DialingState),
		}
		if state.Level != dialqueue.PauseEverything {
			view.ID = &state.PauseScope.ID
		}
		answer.Pauses = append(answer.Pauses, view)
	}
	for _, one := range reports {
		answer.Replicas = append(answer.Replicas, processView{
			Replica: one.Name, ReportedAt: openapi.TimestampOf(one.ReportedAt), SIP: one.Report.SIP,
		})
		for _, c := range one.Report.AgentCircuits {
			answer.AgentCircuits = append(answer.AgentCircuits, agentCircuitView{
				Replica: one.Name, Kind: c.Kind, WorkspaceID: c.WorkspaceID, OpenUntil: openapi.TimestampOrNull(c.OpenUntil),
			})
		}
	}
	return httpserver.WriteJSON(w, http.StatusOK, answer)
}
