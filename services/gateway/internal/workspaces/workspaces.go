// Package workspaces defines workspaces, their plans, and which settings are valid.
// contacts-compliance validates calling policies, and billing-wallet stores the money.
package workspaces

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/proto/eventv1"
)

// Plan is the plan of a workspace. It decides features and the rate limit.
type Plan string

const (
	Starter Plan = "starter"
	Growth  Plan = "growth"
	Scale   Plan = "scale"
)

// Status is whether a workspace is active or suspended.
type Status string

const (
	Active    Status = "active"
	Suspended Status = "suspended"
)

// The defaults of a workspace. See docs/reference/api/operator-api.md#workspace-fields.
const (
	defaultLiveCalls      = 500
	defaultCallsPerSecond = 50
)

// The default rate limits in requests per minute and API key. See
// docs/reference/api/README.md#rate-limits.
const (
	DefaultRate = 120
	ScaleRate   = 600
)

// Features override the plan's features; nil uses the plan. No plan includes transcripts and
// recordings, so there nil is off.
type Features struct {
	API         *bool `json:"api,omitempty"`
	Webhooks    *bool `json:"webhooks,omitempty"`
	Transcripts *bool `json:"transcripts,omitempty"`
	Recordings  *bool `json:"recordings,omitempty"`
}

// Retention sets retention periods in days; nil uses the default. See
// docs/reference/api/operator-api.md#retention-periods.
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
	// CallingPolicy is the policy that an operator set last. nil is the default calling window.
	// contacts-compliance applies the policy.
	CallingPolicy json.RawMessage
	// PolicyOperator set CallingPolicy with the change to PolicyVersion. Both are nil if no policy
	// was set.
	PolicyOperator *string
	PolicyVersion  *int64
	Features       Features
	// RateLimitPerMinute overrides the rate limit of the plan; nil uses the plan.
	RateLimitPerMinute *int32
	MaxLiveCalls       int32
	CallsPerSecond     int32
	// Destinations are the only number prefixes that the workspace calls. If empty, there is no
	// restriction.
	Destinations []string
	Retention    Retention
	// Version increases by one with each change.
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// API reports whether the keys of the workspace may be used. The plan or its override decides. A
// suspended workspace has no API access.
func (w Workspace) API() bool {
	return w.Status == Active && featureEnabled(w.Features.API, w.Plan != Starter)
}

// Webhooks reports whether the workspace has the webhooks feature.
func (w Workspace) Webhooks() bool { return featureEnabled(w.Features.Webhooks, w.Plan != Starter) }

// Transcripts reports whether transcripts are stored and shown.
func (w Workspace) Transcripts() bool { return featureEnabled(w.Features.Transcripts, false) }

// Recordings reports whether calls are recorded, after the notice of recording was played.
func (w Workspace) Recordings() bool { return featureEnabled(w.Features.Recordings, false) }

func featureEnabled(override *bool, plan bool) bool {
	if override != nil {
		return *override
	}
	return plan
}

// RatePerMinute returns the number of requests per minute that each key may make.
func (w Workspace) RatePerMinute() int {
	switch {
	case w.RateLimitPerMinute != nil:
		return int(*w.RateLimitPerMinute)
	case w.Plan == Scale:
		return ScaleRate
	}
	return DefaultRate
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
			KeepCallsDays: valueOrDefault(w.Retention.CallsDays,
				0), KeepTranscriptsDays: valueOrDefault(w.Retention.TranscriptsDays, 0),
			KeepRecordingsDays: valueOrDefault(w.Retention.RecordingsDays,
				0), KeepWebhooksDays: valueOrDefault(w.Retention.WebhooksDays, 0),
			CallingPolicy: policy,
		}},
	}
}
