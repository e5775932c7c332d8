package workspaces

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/testing/protocmp"

	"ringfence.dev/libs/money"
	"ringfence.dev/proto/eventv1"
)

func made(t *testing.T, body string) Workspace {
	t.Helper()
	var c Change
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		t.Fatal(err)
	}
	w, err := New(uuid.Must(uuid.NewV7()), "ada", c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func changed(t *testing.T, w Workspace, body string) Workspace {
	t.Helper()
	var c Change
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		t.Fatal(err)
	}
	next, err := w.Changed("bob", c)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return next
}

func TestWorkspace_PlanAndOverridesDecideFeatures(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name          string
		members       string
		api, webhooks bool
		rate          int
	}{
		{"plan starter has no features", `"plan":"starter"`, false, false, 120},
		{"plan growth has both features", `"plan":"growth"`, true, true, 120},
		{"plan scale has both features and a higher rate", `"plan":"scale"`, true, true, 600},
		{"an override adds a feature", `"plan":"starter","features":{"api":true}`, true, false, 120},
		{"an override removes a feature", `"plan":"scale","features":{"webhooks":false}`, true, false, 600},
		{"an own rate limit overrides the plan", `"plan":"scale","rate_limit_per_minute":7`, true, true, 7},
		{"a status in POST is ignored", `"plan":"growth","status":"suspended"`, true, true, 120},
	} {
		w := made(t, `{"name":"x","currency":"USD",`+row.members+`}`)
		if w.API() != row.api {
			t.Errorf("%s: w.API() = %v, want %v", row.name, w.API(), row.api)
		}
		if w.Webhooks() != row.webhooks {
			t.Errorf("%s: w.Webhooks() = %v, want %v", row.name, w.Webhooks(), row.webhooks)
		}
		if w.RatePerMinute() != row.rate {
			t.Errorf("%s: w.RatePerMinute() = %v, want %v", row.name, w.RatePerMinute(), row.rate)
		}
	}
}

func TestChanged_AbsentKeepsAndNullResets(t *testing.T) {
	t.Parallel()
	w := made(t, `{"name":"x","plan":"growth","currency":"USD","features":{"api":false,"webhooks":false},"rate_limit_per_minute":7,
		"max_live_calls":8,"calls_per_second":9,"destinations":["+1"],"calling_policy":{"window":{}}}`)
	same := changed(t, w, `{}`)
	if same.Version != 2 {
		t.Errorf("an empty change: same.Version = %v, want 2", same.Version)
	}
	if same.Name != "x" {
		t.Errorf("an empty change: same.Name = %q, want \"x\"", same.Name)
	}
	if *same.RateLimitPerMinute != 7 {
		t.Errorf("an empty change: same.RateLimitPerMinute = %v, want 7", *same.RateLimitPerMinute)
	}
	if same.MaxLiveCalls != 8 {
		t.Errorf("an empty change: same.MaxLiveCalls = %v, want 8", same.MaxLiveCalls)
	}
	if same.CallsPerSecond != 9 {
		t.Errorf("an empty change: same.CallsPerSecond = %v, want 9", same.CallsPerSecond)
	}
	if len(same.Destinations) != 1 {
		t.Fatalf("an empty change: length of same.Destinations = %v, want 1", len(same.Destinations))
	}
	if same.CallingPolicy == nil {
		t.Errorf("an empty change: same.CallingPolicy = nil, want a value")
	}
	if w.Version != 1 {
		t.Error("the workspace itself was changed")
	}
	standard := changed(t, w, `{"rate_limit_per_minute":null,"max_live_calls":null,"calls_per_second":null,"destinations":null,"calling_policy":null,"features":{"api":null}}`)
	if standard.RatePerMinute() != 120 {
		t.Errorf("null: standard.RatePerMinute() = %v, want 120", standard.RatePerMinute())
	}
	if standard.MaxLiveCalls != 500 {
		t.Errorf("null: standard.MaxLiveCalls = %v, want 500", standard.MaxLiveCalls)
	}
	if standard.CallsPerSecond != 50 {
		t.Errorf("null: standard.CallsPerSecond = %v, want 50", standard.CallsPerSecond)
	}
	if len(standard.Destinations) != 0 {
		t.Fatalf("null: length of standard.Destinations = %v, want 0", len(standard.Destinations))
	}
	if standard.CallingPolicy != nil {
		t.Errorf("null: standard.CallingPolicy = %v, want nil", standard.CallingPolicy)
	}
	if !standard.API() {
		t.Errorf("features: standard.API() = false, want true; standard.Features = %+v", standard.Features)
	} else if standard.Webhooks() {
		t.Errorf("features: standard.Webhooks() = true, want false; standard.Features = %+v", standard.Features)
	}
	if all := changed(t, w, `{"features":null}`); !all.API() {
		t.Errorf("features null: all.API() = false, want true; all.Features = %+v", all.Features)
	} else if !all.Webhooks() {
		t.Errorf("features null: all.Webhooks() = false, want true; all.Features = %+v", all.Features)
	}
	if w.Transcripts() {
		t.Errorf("w.Transcripts() = true, want false")
	}
	if w.Recordings() {
		t.Errorf("w.Recordings() = true, want false")
	}
	if changed(t, w, `{"plan":"scale","features":null}`).Recordings() {
		t.Errorf("changed(t, w, `{\"plan\":\"scale\",\"features\":null}`).Recordings() = true, want false")
	}
	both := changed(t, changed(t, w, `{"features":{"transcripts":true}}`), `{"features":{"recordings":true},"retention":{"recordings_days":9}}`)
	state := both.Event().GetWorkspace()
	if !both.Transcripts() {
		t.Errorf("fact: both.Transcripts() = false, want true")
	}
	if !state.GetTranscriptsEnabled() {
		t.Errorf("fact: state.GetTranscriptsEnabled() = false, want true")
	}
	if !state.GetRecordingsEnabled() {
		t.Errorf("fact: state.GetRecordingsEnabled() = false, want true")
	}
	if state.GetKeepRecordingsDays() != 9 {
		t.Errorf("fact: state.GetKeepRecordingsDays() = %v, want 9", state.GetKeepRecordingsDays())
	}
	if state.GetApiEnabled() {
		t.Errorf("fact: state.GetApiEnabled() = true, want false")
	}
	if off := changed(t, both, `{"features":{"transcripts":null}}`); off.Transcripts() {
		t.Errorf("features: off.Transcripts() = true, want false; off.Features = %+v", off.Features)
	} else if !off.Recordings() {
		t.Errorf("features: off.Recordings() = false, want true; off.Features = %+v", off.Features)
	}
	if gone := changed(t, w, `{"status":"suspended","features":null}`); gone.API() {
		t.Error("a suspended workspace may use the API")
	}
	merged := changed(t, changed(t, w, `{"retention":{"calls_days":90,"webhooks_days":3}}`), `{"retention":{"transcripts_days":7,"webhooks_days":null}}`)
	r := merged.Retention
	if *r.CallsDays != 90 {
		t.Errorf("retention: r.CallsDays = %v, want 90", *r.CallsDays)
	}
	if *r.TranscriptsDays != 7 {
		t.Errorf("retention: r.TranscriptsDays = %v, want 7", *r.TranscriptsDays)
	}
	if r.WebhooksDays != nil {
		t.Errorf("retention: r.WebhooksDays = %v, want nil", r.WebhooksDays)
	}
	state = merged.Event().GetWorkspace()
	if state.GetKeepCallsDays() != 90 {
		t.Errorf("state.GetKeepCallsDays() = %v, want 90", state.GetKeepCallsDays())
	}
	if state.GetKeepTranscriptsDays() != 7 {
		t.Errorf("state.GetKeepTranscriptsDays() = %v, want 7", state.GetKeepTranscriptsDays())
	}
	if state.GetKeepWebhooksDays() != 0 {
		t.Errorf("state.GetKeepWebhooksDays() = %v, want 0", state.GetKeepWebhooksDays())
	}
	if all := changed(t, merged, `{"retention":null}`); all.Retention.CallsDays != nil {
		t.Errorf("retention null = %+v", all.Retention)
	}
	if kept := changed(t, w, `{"currency":"USD"}`); kept.Currency != "USD" {
		t.Error("the same currency was refused")
	}
}

func TestEvent_ContainsTheFullStateOfTheWorkspace(t *testing.T) {
	t.Parallel()
	w := changed(t, made(t, `{"name":"x","plan":"scale","currency":"EUR","destinations":["+44"]}`), `{"status":"suspended"}`)
	fact := w.Event()
	state := fact.GetWorkspace()
	if fact.Version != 2 {
		t.Errorf("fact.Version = %v, want 2", fact.Version)
	}
	if fact.WorkspaceId != w.ID.String() {
		t.Errorf("fact.WorkspaceId = %v, want %v", fact.WorkspaceId, w.ID.String())
	}
	if state.Status != "suspended" {
		t.Errorf("fact: state.Status = %q, want \"suspended\"", state.Status)
	}
	if state.ApiEnabled {
		t.Errorf("fact: state.ApiEnabled = true, want false")
	}
	if !state.WebhooksEnabled {
		t.Errorf("fact: state.WebhooksEnabled = false, want true")
	}
	if state.Plan != "scale" {
		t.Errorf("fact: state.Plan = %q, want \"scale\"", state.Plan)
	}
	if state.Currency != "EUR" {
		t.Errorf("fact: state.Currency = %q, want \"EUR\"", state.Currency)
	}
	if state.MaxLiveCalls != 500 {
		t.Errorf("fact: state.MaxLiveCalls = %v, want 500", state.MaxLiveCalls)
	}
	if state.CallsPerSecond != 50 {
		t.Errorf("fact: state.CallsPerSecond = %v, want 50", state.CallsPerSecond)
	}
	if state.Destinations[0] != "+44" {
		t.Errorf("fact: state.Destinations[0] = %q, want \"+44\"", state.Destinations[0])
	}
}

func TestEvent_CallingPolicyHasOperatorAndVersion(t *testing.T) {
	t.Parallel()
	created := made(t, `{"name":"x","plan":"scale","currency":"EUR"}`)
	set := changed(t, changed(t, created, `{"name":"y"}`), `{"calling_policy":{"packs":["us"]}}`)
	kept := changed(t, set, `{"destinations":["+1"]}`)
	unknown := kept
	unknown.PolicyOperator, unknown.PolicyVersion = nil, nil
	tests := []struct {
		name string
		of   Workspace
		want *eventv1.CallingPolicy
	}{
		{
			name: "the default policy of a new workspace", of: created,
			want: &eventv1.CallingPolicy{Operator: "ada", SetInVersion: 1},
		},
		{name: "a policy that was set", of: set,
			want: &eventv1.CallingPolicy{PolicyJson: []byte(`{"packs":["us"]}`), Operator: "bob", SetInVersion: 3}},
		{name: "a later change of another setting", of: kept,
			want: &eventv1.CallingPolicy{PolicyJson: []byte(`{"packs":["us"]}`), Operator: "bob", SetInVersion: 3}},
		{name: "a policy whose operator was not stored", of: unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.of.Event().GetWorkspace().GetCallingPolicy()
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("calling policy of the event (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInbound_ChangesAreMergedAndPublished(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		body string
		want Inbound
	}{
		{name: "no change", body: `{}`, want: Inbound{IncrementSeconds: 1, MaxConcurrent: 50, MaxCallSeconds: 3600}},
		{
			name: "a price", body: `{"inbound":{"per_minute":"0.02","increment_seconds":6}}`,
			want: Inbound{PerMinute: 20_000, IncrementSeconds: 6, MaxConcurrent: 50, MaxCallSeconds: 3600},
		},
		{
			name: "limits", body: `{"inbound":{"max_concurrent":3,"max_call_seconds":60}}`,
			want: Inbound{IncrementSeconds: 1, MaxConcurrent: 3, MaxCallSeconds: 60},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := changed(t, made(t, `{"name":"x","plan":"growth","currency":"USD"}`), tt.body)
			if diff := cmp.Diff(tt.want, w.Inbound); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			got := w.Event().GetWorkspace().GetInbound()
			published := Inbound{
				PerMinute: money.Micro(got.GetPerMinuteMicro()), IncrementSeconds: got.GetIncrementSeconds(),
				MaxConcurrent: got.GetMaxConcurrent(), MaxCallSeconds: got.GetMaxCallSeconds(),
			}
			if diff := cmp.Diff(tt.want, published); diff != "" {
				t.Errorf("published settings (-want +got):\n%s", diff)
			}
			for _, reset := range []string{
				`{"inbound":null}`,
				`{"inbound":{"per_minute":null,"increment_seconds":null,"max_concurrent":null,"max_call_seconds":null}}`,
			} {
				if diff := cmp.Diff(tests[0].want, changed(t, w, reset).Inbound); diff != "" {
					t.Errorf("settings after %s (-want +got):\n%s", reset, diff)
				}
			}
		})
	}
}
