// Package workspaces owns what a tenant is: its plan, what the plan includes, and which settings are
// valid. It leaves the calling policy's rules to contacts-compliance and the money to billing-wallet.
package workspaces

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/proto/eventv1"
)

// Plan is what the tenant pays for.
type Plan string

const (
	Starter Plan = "starter"
	Growth  Plan = "growth"
	Scale   Plan = "scale"
)

// Status says whether the tenant may work at all.
type Status string

const (
	Active    Status = "active"
	Suspended Status = "suspended"
)

// What a workspace has unless set (contract.md §6).
const (
	standardLiveCalls      = 500
	standardCallsPerSecond = 50
)

// Requests per minute and API key, unless the workspace sets its own limit (contract.md 6.1).
const (
	StandardRate = 120
	ScaleRate    = 600
)

// Features override the plan; nil leaves it to the plan. Transcripts and recordings are in no plan: nil is off.
type Features struct {
	API         *bool `json:"api,omitempty"`
	Webhooks    *bool `json:"webhooks,omitempty"`
	Transcripts *bool `json:"transcripts,omitempty"`
	Recordings  *bool `json:"recordings,omitempty"`
}

// Retention says for how many days what is kept; nil leaves it to the standard (contract.md §10).
type Retention struct {
	CallsDays       *int32 `json:"calls_days,omitempty"`
	TranscriptsDays *int32 `json:"transcripts_days,omitempty"`
	RecordingsDays  *int32 `json:"recordings_days,omitempty"`
	WebhooksDays    *int32 `json:"webhooks_days,omitempty"`
}

// Workspace is one tenant.
type Workspace struct {
	ID       uuid.UUID
	Name     string
	Plan     Plan
	Currency string
	Status   Status
	// CallingPolicy is what the operator last set, nil for the standard window; its owner is contacts-compliance.
	CallingPolicy json.RawMessage
	// PolicyOperator set CallingPolicy, with the change to PolicyVersion. Both are nil if CallingPolicy
	// was set before they were stored.
	PolicyOperator *string
	PolicyVersion  *int64
	Features       Features
	// RateLimitPerMinute overrides the plan's.
	RateLimitPerMinute *int32
	MaxLiveCalls       int32
	CallsPerSecond     int32
	// Destinations are the only prefixes it calls; empty: no restriction.
	Destinations []string
	Retention    Retention
	// Version rises by one with every change.
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// API says whether its keys may be used: by plan or override, and never while suspended.
func (w Workspace) API() bool {
	return w.Status == Active && either(w.Features.API, w.Plan != Starter)
}

// Webhooks says whether it has the webhooks feature.
func (w Workspace) Webhooks() bool { return either(w.Features.Webhooks, w.Plan != Starter) }

// Transcripts says whether what was said in its calls is kept and shown.
func (w Workspace) Transcripts() bool { return either(w.Features.Transcripts, false) }

// Recordings says whether its calls are recorded, once that was said in them.
func (w Workspace) Recordings() bool { return either(w.Features.Recordings, false) }

func either(override *bool, plan bool) bool {
	if override != nil {
		return *override
	}
	return plan
}

// RatePerMinute is how many requests a minute each of its keys may make.
func (w Workspace) RatePerMinute() int {
	switch {
	case w.RateLimitPerMinute != nil:
		return int(*w.RateLimitPerMinute)
	case w.Plan == Scale:
		return ScaleRate
	}
	return StandardRate
}

// Event returns the full state, as workspaces.v1 and ApplySetting carry it.
func (w Workspace) Event() *eventv1.WorkspaceEvent {
	var policy *eventv1.CallingPolicy
	if w.PolicyVersion != nil && w.PolicyOperator != nil {
		policy = &eventv1.CallingPolicy{
			PolicyJson: w.CallingPolicy, Operator: *w.PolicyOperator, SetInVersion: *w.PolicyVersion,
		}
	}
	return &eventv1.WorkspaceEvent{
		WorkspaceId: w.ID.String(), Version: w.Version, OccurredAt: timestamppb.New(w.UpdatedAt),
		Event: &eventv1.WorkspaceEvent_Workspace{Workspace: &eventv1.Workspace{
			Name: w.Name, Plan: string(w.Plan), Currency: w.Currency, Status: string(w.Status),
			ApiEnabled: w.API(), WebhooksEnabled: w.Webhooks(),
			MaxLiveCalls: w.MaxLiveCalls, CallsPerSecond: w.CallsPerSecond, Destinations: w.Destinations,
			TranscriptsEnabled: w.Transcripts(), RecordingsEnabled: w.Recordings(),
			KeepCallsDays: or(w.Retention.CallsDays, 0), KeepTranscriptsDays: or(w.Retention.TranscriptsDays, 0),
			KeepRecordingsDays: or(w.Retention.RecordingsDays, 0), KeepWebhooksDays: or(w.Retention.WebhooksDays, 0),
			CallingPolicy: policy,
		}},
	}
}
