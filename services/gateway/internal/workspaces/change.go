package workspaces

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/money"
)

const (
	maxName         = 200
	maxPolicy       = 16 << 10
	maxDestinations = 300
	maxSetting      = 1_000_000
)

// Optional is a member of a JSON request body. It distinguishes an absent member, null and a value.
type Optional[T any] struct {
	// Set is true if the member is present, even if it is null.
	Set bool
	// Value is nil if the member is null.
	Value *T
}

// UnmarshalJSON sets Set. The decoder calls it only if the member is present.
func (o *Optional[T]) UnmarshalJSON(raw []byte) error {
	o.Set = true
	return json.Unmarshal(raw, &o.Value)
}

// FeatureChange changes the overrides of the plan's features. A member that is absent is not
// changed. Null removes the override.
type FeatureChange struct {
	API         Optional[bool] `json:"api"`
	Webhooks    Optional[bool] `json:"webhooks"`
	Transcripts Optional[bool] `json:"transcripts"`
	Recordings  Optional[bool] `json:"recordings"`
}

// RetentionChange changes the retention periods. A member that is absent is not changed. Null sets
// the default.
type RetentionChange struct {
	CallsDays       Optional[int32] `json:"calls_days"`
	TranscriptsDays Optional[int32] `json:"transcripts_days"`
	RecordingsDays  Optional[int32] `json:"recordings_days"`
	WebhooksDays    Optional[int32] `json:"webhooks_days"`
}

// InboundChange changes the price and the limits of inbound calls. An absent member is not changed;
// null sets the default.
type InboundChange struct {
	PerMinute        Optional[string] `json:"per_minute"`
	IncrementSeconds Optional[int32]  `json:"increment_seconds"`
	MaxConcurrent    Optional[int32]  `json:"max_concurrent"`
	MaxCallSeconds   Optional[int32]  `json:"max_call_seconds"`
}

// Change is the body of POST and PATCH. In PATCH, a member that is absent is not changed, and null
// sets the default.
type Change struct {
	Name               Optional[string]          `json:"name"`
	Plan               Optional[Plan]            `json:"plan"`
	Currency           Optional[string]          `json:"currency"`
	Mode               Optional[Mode]            `json:"mode"`
	Status             Optional[Status]          `json:"status"`
	CallingPolicy      Optional[json.RawMessage] `json:"calling_policy"`
	Features           Optional[FeatureChange]   `json:"features"`
	RateLimitPerMinute Optional[int32]           `json:"rate_limit_per_minute"`
	MaxLiveCalls       Optional[int32]           `json:"max_live_calls"`
	CallsPerSecond     Optional[int32]           `json:"calls_per_second"`
	Destinations       Optional[[]string]        `json:"destinations"`
	Retention          Optional[RetentionChange] `json:"retention"`
	Inbound            Optional[InboundChange]   `json:"inbound"`
}

// New returns the workspace that the body of POST describes. operator is the operator's name. The
// error is 422 validation_error and names the field.
func New(id uuid.UUID, operator string, c Change) (Workspace, error) {
	switch {
	case c.Name.Value == nil:
		return Workspace{}, apierr.Validation("name", "is required.")
	case c.Plan.Value == nil:
		return Workspace{}, apierr.Validation("plan", "is required: starter, growth or scale.")
	case c.Currency.Value == nil:
		return Workspace{}, apierr.Validation("currency", "is required: a code of three capital letters, like USD.")
	}
	if !currencyCode.MatchString(*c.Currency.Value) {
		return Workspace{}, apierr.Validation("currency", "must be a code of three capital letters, like USD.")
	}
	mode := Live
	if c.Mode.Value != nil {
		mode = *c.Mode.Value
	}
	if !slices.Contains([]Mode{Live, Test}, mode) {
		return Workspace{}, apierr.Validation("mode", "must be live or test.")
	}
	c.Status = Optional[Status]{} // a new workspace is active
	c.CallingPolicy.Set = true    // the default calling policy counts as set by the operator
	w := Workspace{ID: id, Currency: *c.Currency.Value, Status: Active, Mode: mode, Version: 1, Destinations: []string{},
		MaxLiveCalls: defaultLiveCalls, CallsPerSecond: defaultCallsPerSecond, Inbound: defaultInbound()}
	return w.apply(operator, c)
}

// Changed returns the next version of the workspace after a PATCH. operator is the operator's name.
// The currency and the mode of a workspace cannot be changed.
func (w Workspace) Changed(operator string, c Change) (Workspace, error) {
	if c.Currency.Set && (c.Currency.Value == nil || *c.Currency.Value != w.Currency) {
		return Workspace{}, apierr.Validation("currency", "cannot be changed: it is %s for good.", w.Currency)
	}
	if c.Mode.Set && (c.Mode.Value == nil || *c.Mode.Value != w.Mode) {
		return Workspace{}, apierr.Validation("mode", "cannot be changed: this is a %s workspace.", w.Mode)
	}
	w.Version++
	return w.apply(operator, c)
}

func (w Workspace) apply(operator string, c Change) (Workspace, error) {
	for _, step := range []func(*Workspace, Change) error{
		applyName, applyPlan, applyPolicy, applyFeatures, applyLimits, applyDestinations, applyRetention, applyInbound,
	} {
		if err := step(&w, c); err != nil {
			return Workspace{}, err
		}
	}
	if c.CallingPolicy.Set {
		version := w.Version
		w.PolicyOperator, w.PolicyVersion = &operator, &version
	}
	return w, nil
}

func applyName(w *Workspace, c Change) error {
	if !c.Name.Set {
		return nil
	}
	if c.Name.Value == nil || strings.TrimSpace(*c.Name.Value) == "" || utf8.RuneCountInString(*c.Name.Value) > maxName {
		return apierr.Validation("name", "must be 1 to %d characters long.", maxName)
	}
	w.Name = *c.Name.Value
	return nil
}

func applyPlan(w *Workspace, c Change) error {
	if c.Plan.Set {
		if c.Plan.Value == nil || !slices.Contains([]Plan{Starter, Growth, Scale}, *c.Plan.Value) {
			return apierr.Validation("plan", "must be starter, growth or scale.")
		}
		w.Plan = *c.Plan.Value
	}
	if c.Status.Set {
		if c.Status.Value == nil || !slices.Contains([]Status{Active, Suspended}, *c.Status.Value) {
			return apierr.Validation("status", "must be active or suspended.")
		}
		w.Status = *c.Status.Value
	}
	return nil
}

// applyPolicy stores the calling policy unchanged. contacts-compliance validates its content.
func applyPolicy(w *Workspace, c Change) error {
	if !c.CallingPolicy.Set {
		return nil
	}
	w.CallingPolicy = nil
	if c.CallingPolicy.Value == nil {
		return nil
	}
	policy := bytes.TrimSpace(*c.CallingPolicy.Value)
	if len(policy) == 0 || policy[0] != '{' || len(policy) > maxPolicy {
		return apierr.Validation("calling_policy", "must be an object with window and timezone, or null for the standard window.")
	}
	w.CallingPolicy = json.RawMessage(policy)
	return nil
}

func applyFeatures(w *Workspace, c Change) error {
	if !c.Features.Set {
		return nil
	}
	if c.Features.Value == nil {
		w.Features = Features{}
		return nil
	}
	sent := c.Features.Value
	for _, feature := range []struct {
		sent Optional[bool]
		into **bool
	}{
		{sent.API, &w.Features.API}, {sent.Webhooks, &w.Features.Webhooks},
		{sent.Transcripts, &w.Features.Transcripts}, {sent.Recordings, &w.Features.Recordings},
	} {
		if feature.sent.Set {
			*feature.into = feature.sent.Value
		}
	}
	return nil
}

func applyLimits(w *Workspace, c Change) error {
	for _, setting := range []struct {
		name   string
		sent   Optional[int32]
		assign func(*int32)
	}{
		{"rate_limit_per_minute", c.RateLimitPerMinute, func(v *int32) { w.RateLimitPerMinute = v }},
		{"max_live_calls", c.MaxLiveCalls, func(v *int32) { w.MaxLiveCalls = valueOrDefault(v, defaultLiveCalls) }},
		{"calls_per_second", c.CallsPerSecond, func(v *int32) {
			w.CallsPerSecond = valueOrDefault(v,
				defaultCallsPerSecond)
		}},
	} {
		if !setting.sent.Set {
			continue
		}
		if v := setting.sent.Value; v != nil && (*v < 1 || *v > maxSetting) {
			return apierr.Validation(setting.name, "must be a whole number from 1 to %d, or null for the standard.", maxSetting)
		}
		setting.assign(setting.sent.Value)
	}
	return nil
}

// minCallsDays is the minimum retention period of calls in days. Records about a call can arrive
// late or repeatedly, but not after 60 days.
const (
	minCallsDays = 60
	maxDays      = 3653 // ten years
)

func applyRetention(w *Workspace, c Change) error {
	if !c.Retention.Set {
		return nil
	}
	if c.Retention.Value == nil {
		w.Retention = Retention{}
		return nil
	}
	for _, setting := range []struct {
		name    string
		sent    Optional[int32]
		minimum int32
		into    **int32
	}{
		{"retention.calls_days", c.Retention.Value.CallsDays, minCallsDays, &w.Retention.CallsDays},
		{"retention.transcripts_days", c.Retention.Value.TranscriptsDays, 1, &w.Retention.TranscriptsDays},
		{"retention.recordings_days", c.Retention.Value.RecordingsDays, 1, &w.Retention.RecordingsDays},
		{"retention.webhooks_days", c.Retention.Value.WebhooksDays, 1, &w.Retention.WebhooksDays},
	} {
		if !setting.sent.Set {
			continue
		}
		if v := setting.sent.Value; v != nil && (*v < setting.minimum || *v > maxDays) {
			return apierr.Validation(setting.name, "must be a whole number from %d to %d, or null for the standard.",
				setting.minimum, maxDays)
		}
		*setting.into = setting.sent.Value
	}
	return nil
}

const (
	maxInboundPrice     = 1_000 * money.Credit // per minute
	maxIncrementSeconds = 3600
	maxInboundSeconds   = 4 * 60 * 60
)

func applyInbound(w *Workspace, c Change) error {
	if !c.Inbound.Set {
		return nil
	}
	if c.Inbound.Value == nil {
		w.Inbound = defaultInbound()
		return nil
	}
	sent, standard := c.Inbound.Value, defaultInbound()
	if sent.PerMinute.Set {
		price, err := inboundPrice(sent.PerMinute.Value)
		if err != nil {
			return err
		}
		w.Inbound.PerMinute = price
	}
	for _, setting := range []struct {
		name     string
		sent     Optional[int32]
		maximum  int32
		standard int32
		into     *int32
	}{
		{
			"inbound.increment_seconds", sent.IncrementSeconds, maxIncrementSeconds,
			standard.IncrementSeconds, &w.Inbound.IncrementSeconds,
		},
		{"inbound.max_concurrent", sent.MaxConcurrent, maxSetting, standard.MaxConcurrent, &w.Inbound.MaxConcurrent},
		{
			"inbound.max_call_seconds", sent.MaxCallSeconds, maxInboundSeconds,
			standard.MaxCallSeconds, &w.Inbound.MaxCallSeconds,
		},
	} {
		if !setting.sent.Set {
			continue
		}
		if v := setting.sent.Value; v != nil && (*v < 1 || *v > setting.maximum) {
			return apierr.Validation(setting.name, "must be a whole number from 1 to %d, or null for the standard.",
				setting.maximum)
		}
		*setting.into = valueOrDefault(setting.sent.Value, setting.standard)
	}
	return nil
}

// inboundPrice returns the price per minute, or 0 if the member is null.
func inboundPrice(sent *string) (money.Micro, error) {
	if sent == nil {
		return 0, nil
	}
	price, err := money.Parse(*sent)
	if err != nil {
		return 0, apierr.Validation("inbound.per_minute",
			`must be a decimal string with at most six places, such as "0.05".`)
	}
	if price < 0 || price > maxInboundPrice {
		return 0, apierr.Validation("inbound.per_minute", "must be between 0 and %s.", maxInboundPrice)
	}
	return price, nil
}

func valueOrDefault(value *int32, standard int32) int32 {
	if value == nil {
		return standard
	}
	return *value
}

var (
	currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)
	prefix       = regexp.MustCompile(`^\+[1-9][0-9]{0,14}$`)
)

func applyDestinations(w *Workspace, c Change) error {
	if !c.Destinations.Set {
		return nil
	}
	w.Destinations = []string{}
	if c.Destinations.Value == nil {
		return nil
	}
	if len(*c.Destinations.Value) > maxDestinations {
		return apierr.Validation("destinations", "may list at most %d prefixes.", maxDestinations)
	}
	for i, destination := range *c.Destinations.Value {
		if !prefix.MatchString(destination) {
			return apierr.Validation(fmt.Sprintf("destinations[%d]", i), "must be a prefix like +44, with the plus.")
		}
	}
	w.Destinations = slices.Clone(*c.Destinations.Value)
	return nil
}
