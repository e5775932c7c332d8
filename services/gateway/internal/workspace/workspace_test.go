package workspace

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/testing/protocmp"

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

func TestWorkspace_WhatThePlanIncludes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name          string
		members       string
		api, webhooks bool
		rate          int
	}{
		{"starter has neither", `"plan":"starter"`, false, false, 120},
		{"growth has both", `"plan":"growth"`, true, true, 120},
		{"scale has both and a higher rate", `"plan":"scale"`, true, true, 600},
		{"an override gives", `"plan":"starter","features":{"api":true}`, true, false, 120},
		{"an override takes", `"plan":"scale","features":{"webhooks":false}`, true, false, 600},
		{"a rate of its own", `"plan":"scale","rate_limit_per_minute":7`, true, true, 7},
		{"status is not for POST", `"plan":"growth","status":"suspended"`, true, true, 120},
	} {
		w := made(t, `{"name":"x","currency":"USD",`+row.members+`}`)
		if w.API() != row.api || w.Webhooks() != row.webhooks || w.RatePerMinute() != row.rate {
			t.Errorf("%s: api %v, webhooks %v, rate %d", row.name, w.API(), w.Webhooks(), w.RatePerMinute())
		}
	}
}

func TestChanged_AbsentStaysNullGoesBack(t *testing.T) {
	t.Parallel()
	w := made(t, `{"name":"x","plan":"growth","currency":"USD","features":{"api":false,"webhooks":false},"rate_limit_per_minute":7,
		"max_live_calls":8,"calls_per_second":9,"destinations":["+1"],"calling_policy":{"window":{}}}`)
	same := changed(t, w, `{}`)
	if same.Version != 2 || same.Name != "x" || *same.RateLimitPerMinute != 7 || same.MaxLiveCalls != 8 || same.CallsPerSecond != 9 || len(same.Destinations) != 1 || same.CallingPolicy == nil {
		t.Errorf("an empty change = %+v", same)
	}
	if w.Version != 1 {
		t.Error("the workspace itself was changed")
	}
	standard := changed(t, w, `{"rate_limit_per_minute":null,"max_live_calls":null,"calls_per_second":null,"destinations":null,"calling_policy":null,"features":{"api":null}}`)
	if standard.RatePerMinute() != 120 || standard.MaxLiveCalls != 500 || standard.CallsPerSecond != 50 || len(standard.Destinations) != 0 || standard.CallingPolicy != nil {
		t.Errorf("null = %+v, want the standard", standard)
	}
	if !standard.API() || standard.Webhooks() {
		t.Errorf("features = %+v: null gives api back to the plan, webhooks stays", standard.Features)
	}
	if all := changed(t, w, `{"features":null}`); !all.API() || !all.Webhooks() {
		t.Errorf("features null = %+v, want the plan's", all.Features)
	}
	if w.Transcripts() || w.Recordings() || changed(t, w, `{"plan":"scale","features":null}`).Recordings() {
		t.Error("transcripts or recordings are on and nobody turned them on")
	}
	both := changed(t, changed(t, w, `{"features":{"transcripts":true}}`), `{"features":{"recordings":true},"retention":{"recordings_days":9}}`)
	if state := both.Event().GetWorkspace(); !both.Transcripts() || !state.GetTranscriptsEnabled() || !state.GetRecordingsEnabled() || state.GetKeepRecordingsDays() != 9 || state.GetApiEnabled() {
		t.Errorf("fact = %v: features merge", state)
	}
	if off := changed(t, both, `{"features":{"transcripts":null}}`); off.Transcripts() || !off.Recordings() {
		t.Errorf("features = %+v: null is off", off.Features)
	}
	if gone := changed(t, w, `{"status":"suspended","features":null}`); gone.API() {
		t.Error("a suspended workspace may use the API")
	}
	merged := changed(t, changed(t, w, `{"retention":{"calls_days":90,"webhooks_days":3}}`), `{"retention":{"transcripts_days":7,"webhooks_days":null}}`)
	if r := merged.Retention; *r.CallsDays != 90 || *r.TranscriptsDays != 7 || r.WebhooksDays != nil {
		t.Errorf("retention = %+v: what is absent stays, null is the standard", r)
	}
	if state := merged.Event().GetWorkspace(); state.GetKeepCallsDays() != 90 || state.GetKeepTranscriptsDays() != 7 || state.GetKeepWebhooksDays() != 0 {
		t.Errorf("fact = %v", state)
	}
	if all := changed(t, merged, `{"retention":null}`); all.Retention.CallsDays != nil {
		t.Errorf("retention null = %+v", all.Retention)
	}
	if kept := changed(t, w, `{"currency":"USD"}`); kept.Currency != "USD" {
		t.Error("the same currency was refused")
	}
}

func TestEvent_IsTheFullState(t *testing.T) {
	t.Parallel()
	w := changed(t, made(t, `{"name":"x","plan":"scale","currency":"EUR","destinations":["+44"]}`), `{"status":"suspended"}`)
	fact := w.Event()
	state := fact.GetWorkspace()
	if fact.Version != 2 || fact.WorkspaceId != w.ID.String() || state.Status != "suspended" || state.ApiEnabled || !state.WebhooksEnabled ||
		state.Plan != "scale" || state.Currency != "EUR" || state.MaxLiveCalls != 500 || state.CallsPerSecond != 50 || state.Destinations[0] != "+44" {
		t.Errorf("fact = %v", fact)
	}
}

func TestEvent_CallingPolicyNamesWhoSetItAndWhen(t *testing.T) {
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
		{name: "the default policy of a new workspace", of: created, want: &eventv1.CallingPolicy{Operator: "ada", SetInVersion: 1}},
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
