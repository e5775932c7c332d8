// Package workspaces defines workspaces and their plans, and validates the settings of workspaces.
// contacts-compliance validates calling policies. billing-wallet stores the wallets.
package workspaces

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/money"
	"ringfence.dev/proto/eventv1"
)

// Plan is the plan of a workspace. It determines the features and the rate limit.
type Plan string

const (
	Starter Plan = "starter"
	Growth  Plan = "growth"
	Scale   Plan = "scale"
)

// Status is the state of a workspace: active or suspended.
type Status string

const (
	Active    Status = "active"
	Suspended Status = "suspended"
)

// Mode determines the carrier of a workspace's calls. The mode of a workspace cannot change.
type Mode string

const (
	// Live is the mode of a workspace whose calls reach phones.
	Live Mode = "live"
	// Test is the mode of a workspace whose calls are simulated.
	Test Mode = "test"
)

// These are the default settings of a workspace
// (docs/reference/api/operator-api.md#workspace-fields).
const (
	defaultLiveCalls      = 500
	defaultCallsPerSecond = 50
)

// defaultInbound returns the price and the limits of inbound calls of a workspace that sets none.
func defaultInbound() Inbound {
	return Inbound{IncrementSeconds: 1, MaxConcurrent: 50, MaxCallSeconds: 3600}
}

// These are the default rate limits, in requests per minute for each API key
// (docs/reference/api/README.md#rate-limits).
const (
	DefaultRate = 120
	ScaleRate   = 600
)

// Features overrides the features of the plan. If a field is nil, the plan decides. No plan
// includes transcripts or recordings, so for these fields nil means off.
type Features struct {
	API         *bool `json:"api,omitempty"`
	Webhooks    *bool `json:"webhooks,omitempty"`
	Transcripts *bool `json:"transcripts,omitempty"`
	Recordings  *bool `json:"recordings,omitempty"`
}

// Retention contains the retention periods in days
// (docs/reference/api/operator-api.md#retention-periods). If a period is nil, the default is used.
type Retention struct {
	CallsDays       *int32 `json:"calls_days,omitempty"`
	TranscriptsDays *int32 `json:"transcripts_days,omitempty"`
	RecordingsDays  *int32 `json:"recordings_days,omitempty"`
	WebhooksDays    *int32 `json:"webhooks_days,omitempty"`
}

// Inbound contains the price and the limits of inbound calls.
type Inbound struct {
	// PerMinute is the price per minute. If it is 0, inbound calls are free.
	PerMinute money.Micro `db:"inbound_per_minute_micro"`
	// IncrementSeconds is the billing increment: talk time is rounded up to a multiple of it.
	IncrementSeconds int32 `db:"inbound_increment_seconds"`
	// MaxConcurrent is the highest number of concurrent inbound calls.
	MaxConcurrent int32 `db:"inbound_max_concurrent"`
	// MaxCallSeconds is the maximum talk time of an inbound call.
	MaxCallSeconds int32 `db:"inbound_max_call_seconds"`
}

// Workspace is one tenant.
type Workspace struct {
	ID       uuid.UUID
	Name     string
	Plan     Plan
	Currency string
	Status   Status
	Mode     Mode
	// CallingPolicy is the policy that an operator set last. If it is nil, the default calling
	// window is used. contacts-compliance applies the policy.
	CallingPolicy json.RawMessage
	// PolicyOperator is the operator who set CallingPolicy. PolicyVersion is the first version of the
	// workspace that contained this policy. Both are nil if no policy was set.
	PolicyOperator *string
	PolicyVersion  *int64
	Features       Features
	// RateLimitPerMinute overrides the rate limit of the plan. If it is nil, the plan decides.
	RateLimitPerMinute *int32
	MaxLiveCalls       int32
	CallsPerSecond     int32
	// Destinations are the number prefixes that the workspace may call. If the list is empty, every
	// number is allowed.
	Destinations []string
	Retention    Retention
	Inbound
	// Version increases by one with each change.
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// API reports whether the API keys of the workspace are accepted. The plan decides, unless the
// workspace overrides this feature. A suspended workspace has no API access.
func (w Workspace) API() bool {
	return w.Status == Active && featureEnabled(w.Features.API, w.Plan != Starter)
}

// Webhooks reports whether the workspace has the webhooks feature.
func (w Workspace) Webhooks() bool { return featureEnabled(w.Features.Webhooks, w.Plan != Starter) }

// Transcripts reports whether transcripts are stored and shown.
func (w Workspace) Transcripts() bool { return featureEnabled(w.Features.Transcripts, false) }

// Recordings reports whether calls are recorded. The recording starts after the notice of recording
// was played.
func (w Workspace) Recordings() bool { return featureEnabled(w.Features.Recordings, false) }

func featureEnabled(override *bool, plan bool) bool {
	if override != nil {
		return *override
	}
	return plan
}

// RatePerMinute returns the number of requests per minute that each key can make.
func (w Workspace) RatePerMinute() int {
	switch {
	case w.RateLimitPerMinute != nil:
		return int(*w.RateLimitPerMinute)
	case w.Plan == Scale:
		return ScaleRate
	}
	return DefaultRate
}

// Event returns the message for workspaces.v1 and ApplySetting. The message contains the full state
// of the workspace. Services of an earlier version cannot read the message of a test workspace.
func (w Workspace) Event() *eventv1.WorkspaceEvent {
	var policy *eventv1.CallingPolicy
	if w.PolicyVersion != nil && w.PolicyOperator != nil {
		policy = &eventv1.CallingPolicy{
			PolicyJson: w.CallingPolicy, Operator: *w.PolicyOperator, SetInVersion: *w.PolicyVersion,
		}
	}
	state := &eventv1.Workspace{
		Name: w.Name, Plan: string(w.Plan), Currency: w.Currency, Status: string(w.Status),
		ApiEnabled: w.API(), WebhooksEnabled: w.Webhooks(),
		MaxLiveCalls: w.MaxLiveCalls, CallsPerSecond: w.CallsPerSecond, Destinations: w.Destinations,
		TranscriptsEnabled: w.Transcripts(), RecordingsEnabled: w.Recordings(),
		KeepCallsDays: valueOrDefault(w.Retention.CallsDays,
			0), KeepTranscriptsDays: valueOrDefault(w.Retention.TranscriptsDays, 0),
		KeepRecordingsDays: valueOrDefault(w.Retention.RecordingsDays,
			0), KeepWebhooksDays: valueOrDefault(w.Retention.WebhooksDays, 0),
		CallingPolicy: policy,
		Inbound: &eventv1.InboundSettings{
			PerMinuteMicro: int64(w.Inbound.PerMinute), IncrementSeconds: w.Inbound.IncrementSeconds,
			MaxConcurrent: w.Inbound.MaxConcurrent, MaxCallSeconds: w.Inbound.MaxCallSeconds,
		},
	}
	event := &eventv1.WorkspaceEvent{
		WorkspaceId: w.ID.String(), Version: w.Version, OccurredAt: timestamppb.New(w.UpdatedAt),
		Event: &eventv1.WorkspaceEvent_Workspace{Workspace: state},
	}
	if w.Mode == Test {
		event.Event = &eventv1.WorkspaceEvent_TestWorkspace{TestWorkspace: state}
	}
	return event
}
