package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/proto/eventv1"
)

const (
	talked      = "dialing dialing ringing answered ended analysed"
	unconnected = "dialing dialing ended"
)

// The rows repeat the table of docs/test-numbers.md and the mapping of
// docs/reference/api/calls.md#hangup-causes-and-call-status.
func TestDial_EachTestNumberHasItsDocumentedResult(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0.05")
	r.dialer()
	tests := []struct {
		digits, facts, status, cause, disposition, code, outcome string
		charged                                                  bool
	}{
		{"01", talked, "completed", "normal_clearing", "human", "", "interested", true},
		{"90", unconnected, "busy", "user_busy", "busy", "", "", false},
		{"91", "dialing dialing ringing ended", "no_answer", "no_answer", "no_answer", "", "", false},
		{"92", unconnected, "failed", "unallocated_number", "invalid_number", "invalid_number", "", false},
		{"93", unconnected, "failed", "normal_temporary_failure", "unreachable", "provider_unavailable", "", false},
		{"94", talked, "completed", "normal_clearing", "voicemail", "", "no_conversation", true},
		{"95", talked, "completed", "normal_clearing", "abandoned", "", "no_conversation", true},
		{"96", talked, "completed", "normal_clearing", "human", "", "opted_out", true},
		{"97", talked, "completed", "normal_clearing", "human", "", "callback_requested", true},
		{"98", talked, "completed", "normal_clearing", "human", "", "interested", true},
		{"99", "dialing dialing ringing answered ended", "failed", "agent_error", "error", "agent_unavailable", "", false},
	}
	ids := map[string]uuid.UUID{}
	for _, tt := range tests {
		ids[tt.digits] = r.request("+141555512" + tt.digits)
	}
	for _, tt := range tests {
		t.Run(tt.digits, func(t *testing.T) {
			facts := r.ends(ids[tt.digits])
			if got := names(facts); got != tt.facts {
				t.Fatalf("facts = %s, want %s", got, tt.facts)
			}
			end := last(facts)
			c := end.GetCall()
			switch {
			case c.GetStatus() != tt.status:
				t.Errorf("c.GetStatus() = %v, want %v", c.GetStatus(), tt.status)
			case c.GetHangupCause() != tt.cause:
				t.Errorf("c.GetHangupCause() = %v, want %v", c.GetHangupCause(), tt.cause)
			case c.GetDisposition() != tt.disposition:
				t.Errorf("c.GetDisposition() = %v, want %v", c.GetDisposition(), tt.disposition)
			case c.GetErrorCode() != tt.code:
				t.Errorf("c.GetErrorCode() = %v, want %v", c.GetErrorCode(), tt.code)
			case end.GetAnalysed().GetOutcome() != tt.outcome:
				t.Errorf("end.GetAnalysed().GetOutcome() = %v, want %v", end.GetAnalysed().GetOutcome(), tt.outcome)
			case (c.GetBillableSeconds() > 0) != tt.charged:
				t.Errorf("(c.GetBillableSeconds() > 0) = %v, want %v", (c.GetBillableSeconds() > 0), tt.charged)
			}
			if n := len(r.log("originate", "+141555512"+tt.digits)); n != 1 {
				t.Errorf("the carrier was asked %d times", n)
			}
			inOrder(t, facts)
		})
	}
	summaries(t, r, ids)
}

func inOrder(t *testing.T, facts []eventRecord) {
	t.Helper()
	if facts[0].event.GetCall() != nil {
		t.Error("the fence's fact has a call")
	}
	for i, f := range facts[1:] {
		if got := f.event.GetCall().GetVersion(); got != int64(i+1) {
			t.Errorf("version of %s = %d, want %d", f.name, got, i+1)
		}
	}
	c := last(facts).GetCall()
	switch {
	case c.GetFrom() != "+15005550006":
		t.Errorf(`c.GetFrom() = %v, want "+15005550006"`, c.GetFrom())
	case c.GetDirection() != "outbound":
		t.Errorf(`c.GetDirection() = %v, want "outbound"`, c.GetDirection())
	case c.GetQueuedAt() == nil:
		t.Error("c.GetQueuedAt() = nil, want a value")
	}
	var before time.Time
	for _, at := range []*timestamppb.Timestamp{c.GetDialedAt(), c.GetRingingAt(), c.GetAnsweredAt(), c.GetEndedAt()} {
		if at == nil {
			continue
		}
		if at.AsTime().Before(before) {
			t.Errorf("instants out of order: %v", c)
		}
		before = at.AsTime()
	}
	switch {
	case (c.RingSeconds == nil) != (c.GetRingingAt() == nil):
		t.Errorf("(c.RingSeconds == nil) = %v, want %v", (c.RingSeconds == nil), (c.GetRingingAt() == nil))
	case (c.TalkSeconds == nil) != (c.GetAnsweredAt() == nil):
		t.Errorf("(c.TalkSeconds == nil) = %v, want %v", (c.TalkSeconds == nil), (c.GetAnsweredAt() == nil))
	case c.TotalSeconds == nil:
		t.Error("c.TotalSeconds = nil, want a value")
	}
}

func summaries(t *testing.T, r *rig, ids map[string]uuid.UUID) {
	t.Helper()
	var interested map[string]any
	analysed := last(r.ends(ids["01"])).GetAnalysed()
	if err := json.Unmarshal(analysed.GetSummaryJson(), &interested); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"outcome", "confidence", "next_action", "business_type", "customer_name", "key_interests", "key_objections", "scheduled_for",
	} {
		if interested[key] == nil {
			t.Errorf("summary of an interested person has no %s: %s", key, analysed.GetSummaryJson())
		}
	}
	var transcript struct {
		Turns []struct {
			Role, Text string
			At         time.Time
		}
	}
	if err := json.Unmarshal(analysed.GetTranscriptJson(), &transcript); err != nil {
		t.Errorf("transcript: json.Unmarshal: %v", err)
	} else if len(transcript.Turns) < 6 {
		t.Errorf("transcript: length of transcript.Turns = %d, want at least 6; analysed.GetTranscriptJson() = %s",
			len(transcript.Turns), analysed.GetTranscriptJson())
	}
	var callback struct {
		ScheduledFor string `json:"scheduled_for"`
	}
	if err := json.Unmarshal(last(r.ends(ids["97"])).GetAnalysed().GetSummaryJson(), &callback); err != nil {
		t.Fatal(err)
	}
	zone, _ := time.LoadLocation("America/Los_Angeles") // the time zone of numbers with the area code +1 415
	at, err := time.Parse(time.RFC3339, callback.ScheduledFor)
	switch {
	case err != nil:
		t.Errorf("error = %v, want none", err)
	case at.In(zone).Hour() != 10:
		t.Errorf("at.In(zone).Hour() = %v, want 10", at.In(zone).Hour())
	case !strings.Contains(callback.ScheduledFor, "T10:00:00.000-0"):
		t.Errorf("callback.ScheduledFor = %q, want it to contain %q", callback.ScheduledFor, "T10:00:00.000-0")
	}
	var stopped map[string]any
	if err := json.Unmarshal(last(r.ends(ids["96"])).GetAnalysed().GetSummaryJson(), &stopped); err != nil {
		t.Fatal(err)
	}
	for key, value := range stopped {
		if value == nil {
			t.Errorf("summary.%s is null; what was not said is left out", key)
		}
	}
	await(t, "the opt-out is reported", func() bool { return r.gate.heard("+14155551296") == 1 })
}

func TestDial_RepeatedRequestIsDialedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	r.dialer()
	id := uuid.Must(uuid.NewV7())
	same := func(o *order) { o.id = id }
	for range 5 {
		r.request("+14155550001", same)
	}
	r.ends(id)
	r.request("+14155550001", same)
	other := r.request("+14155550002")
	r.ends(other)
	await(t, "every Kafka record is handled", func() bool {
		var n int
		err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM inbox_events").Scan(&n)
		return err == nil && n >= 9
	})
	if got := names(r.factsOf(id.String())); got != talked {
		t.Errorf("facts = %s", got)
	}
	if n := len(r.log("originate", "+14155550001")); n != 1 {
		t.Errorf("the carrier was asked %d times", n)
	}
}

func TestDial_GatesCanBlockOrDeferACall(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	// deferredUntil is the time until which the gates defer the second call request: 3 s after the
	// check. The request must not be dialed earlier.
	var deferredUntil atomic.Pointer[time.Time]
	r.gate.answer = func(req *compliancev1.CheckRequest, times int) (*compliancev1.CheckResponse, error) {
		switch req.GetToE164() {
		case "+14155550011":
			return closed("recipient_dnd"), nil
		case "+14155550012":
			if times == 1 {
				later := time.Now().Add(3 * time.Second).Truncate(time.Millisecond)
				deferredUntil.Store(&later)
				return &compliancev1.CheckResponse{Result: &compliancev1.CheckResponse_Later{Later: &compliancev1.Later{ScheduledFor: timestamppb.New(later)}}}, nil
			}
		}
		return open(), nil
	}
	r.dialer()
	refused, waits := r.request("+14155550011"), r.request("+14155550012")
	premium, abroad := r.request("+19005550014"), r.request("+33140000014")

	blocked := func(id uuid.UUID, code string) {
		t.Helper()
		facts := r.ends(id)
		switch {
		case names(facts) != "blocked":
			t.Errorf(`names(facts) = %v, want "blocked"`, names(facts))
		case last(facts).GetBlocked().GetErrorCode() != code:
			t.Errorf("last(facts).GetBlocked().GetErrorCode() = %v, want %v",
				last(facts).GetBlocked().GetErrorCode(), code)
		case last(facts).GetBlocked().GetErrorDetail() == "":
			t.Error(`last(facts).GetBlocked().GetErrorDetail() = "", want another value`)
		}
	}
	blocked(refused, "recipient_dnd")
	blocked(premium, "destination_not_allowed")
	blocked(abroad, "destination_not_allowed")
	switch facts := r.ends(waits); {
	case names(facts) != "rescheduled "+talked:
		t.Errorf("names(facts) = %v, want %v", names(facts), "rescheduled "+talked)
	case !facts[0].event.GetRescheduled().GetScheduledFor().AsTime().Equal(*deferredUntil.Load()):
		t.Errorf("facts[0].event.GetRescheduled().GetScheduledFor().AsTime() = %v, want %v",
			facts[0].event.GetRescheduled().GetScheduledFor().AsTime(), *deferredUntil.Load())
	case last(facts).GetCall().GetDialedAt().AsTime().Before(*deferredUntil.Load()):
		t.Errorf("dialed at %v, want no time before %v", last(facts).GetCall().GetDialedAt().AsTime(), *deferredUntil.Load())
	}
	for _, to := range []string{"+14155550011", "+19005550014", "+33140000014"} {
		if n := len(r.log("originate", to)); n != 0 {
			t.Errorf("%s was dialed %d times", to, n)
		}
	}
}

func TestDial_SuspensionAndDeletedAgentBlockTheCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	r.announce(false, true)
	r.dialer()
	suspended := r.ends(r.request("+14155550021"))
	if got := names(suspended); got != "blocked" {
		t.Errorf(`facts: names(suspended) = %q, want "blocked"`, got)
	} else if got := last(suspended).GetBlocked().GetErrorCode(); got != "api_not_enabled" {
		t.Errorf(`facts: last(suspended).GetBlocked().GetErrorCode() = %q, want "api_not_enabled"`, got)
	}
	r.announce(true, true)
	await(t, "the workspace may call again", func() bool {
		var enabled bool
		err := r.pool.QueryRow(t.Context(), "SELECT api_enabled FROM workspaces").Scan(&enabled)
		return err == nil && enabled
	})
	ahead := r.request("+14155550023", func(o *order) { o.agent, o.dueAt = r.agent, time.Now().Add(time.Hour) })
	await(t, "the request is queued", func() bool {
		var n int
		err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM dial_queue WHERE call_request_id = $1", ahead).Scan(&n)
		return err == nil && n == 1
	})
	r.announce(true, true)
	if end := last(r.ends(ahead)); end.GetBlocked().GetErrorCode() != "invalid_agent" {
		t.Errorf("scheduled request of a deleted agent: %v", end)
	}
	deleted := r.ends(r.request("+14155550022"))
	if got := names(deleted); got != "blocked" {
		t.Errorf(`facts: names(deleted) = %q, want "blocked"`, got)
	} else if got := last(deleted).GetBlocked().GetErrorCode(); got != "invalid_agent" {
		t.Errorf(`facts: last(deleted).GetBlocked().GetErrorCode() = %q, want "invalid_agent"`, got)
	}
}

// The commit of the fence is delayed until the result of the gates is older than 2 s, the maximum
// age.
func TestDial_ChecksTheGatesAgainIfTheirResultIsTooOld(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	var fenced atomic.Bool
	r.gate.answer = func(*compliancev1.CheckRequest, int) (*compliancev1.CheckResponse, error) {
		if fenced.Load() {
			return closed("recipient_dnd"), nil
		}
		return open(), nil
	}
	r.dialer()
	release := lockFences(t, r)
	id := r.request("+14155550031")
	waitUntilTooOld(t, r, id)
	fenced.Store(true)
	release()
	facts := r.ends(id)
	if got := names(facts); got != "dialing blocked" {
		t.Errorf(`facts: names(facts) = %q, want "dialing blocked"`, got)
	} else if got := last(facts).GetBlocked().GetErrorCode(); got != "recipient_dnd" {
		t.Errorf(`facts: last(facts).GetBlocked().GetErrorCode() = %q, want "recipient_dnd"`, got)
	}
	if n := len(r.log("originate", "+14155550031")); n != 0 {
		t.Errorf("dialed %d times on an answer too old", n)
	}
}

func TestDial_NumberHasAtMostOneLiveCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0.1")
	r.dialer()
	var ended []*eventv1.Call
	var ids []uuid.UUID
	for range 3 {
		ids = append(ids, r.request("+14155550041"))
	}
	for _, id := range ids {
		ended = append(ended, last(r.ends(id)).GetCall())
	}
	for i, a := range ended {
		for _, b := range ended[i+1:] {
			if a.GetDialedAt().AsTime().Before(b.GetEndedAt().AsTime()) && b.GetDialedAt().AsTime().Before(a.GetEndedAt().AsTime()) {
				t.Errorf("two calls to one number at once: %v and %v", a, b)
			}
		}
	}
}

// contacts-compliance has not acknowledged the opt-out yet, so its gates still permit a call. The
// dialer itself must block the next call to the number.
func TestOptOut_IsReportedUntilAcknowledged(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	r.gate.optOut = func(times int) error {
		if times <= 2 {
			return connect.NewError(connect.CodeUnavailable, errors.New("away"))
		}
		return nil
	}
	r.dialer()
	r.ends(r.request("+14155550096"))
	again := r.ends(r.request("+14155550096"))
	if got := names(again); got != "blocked" {
		t.Errorf(`second request: names(again) = %q, want "blocked"`, got)
	} else if got := last(again).GetBlocked().GetErrorCode(); got != "recipient_dnd" {
		t.Errorf(`second request: last(again).GetBlocked().GetErrorCode() = %q, want "recipient_dnd"`, got)
	}
	await(t, "the third report is acknowledged", func() bool {
		var acknowledged bool
		err := r.pool.QueryRow(t.Context(), "SELECT acknowledged_at IS NOT NULL FROM opt_outs").Scan(&acknowledged)
		return err == nil && acknowledged
	})
	if n := r.gate.heard("+14155550096"); n != 3 {
		t.Errorf("reported %d times, want 3", n)
	}
}

func TestWithdraw_RemovesAQueuedRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	p := r.dialer()
	later := func(o *order) { o.dueAt = time.Now().Add(time.Hour) }

	queued := r.request("+14155550051", later)
	await(t, "the request is queued", func() bool {
		var n int
		err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM dial_queue").Scan(&n)
		return err == nil && n == 1
	})
	early, dialed := uuid.Must(uuid.NewV7()), r.request("+14155550052")
	r.ends(dialed)
	for range 2 {
		for id, want := range map[uuid.UUID]bool{queued: true, early: true, dialed: false} {
			if got, err := r.withdraw(p, id); err != nil {
				t.Errorf("withdraw: %v", err)
			} else if got != want {
				t.Errorf("withdraw: got = %v, want %v", got, want)
			}
		}
	}
	// This call request is published after it was withdrawn.
	r.request("+14155550053", func(o *order) { o.id = early })
	canceled := uuid.Must(uuid.NewV7())
	r.publish(kafka.CallRequests, canceled, &eventv1.CallRequestEvent{
		CallRequestId: canceled.String(), WorkspaceId: r.workspace.String(),
		Event: &eventv1.CallRequestEvent_Canceled{Canceled: &eventv1.Canceled{}},
	})
	for _, id := range []uuid.UUID{queued, early, canceled} {
		if got := names(r.ends(id)); got != "withdrawn" {
			t.Errorf("facts = %s, want withdrawn", got)
		}
	}
	r.ends(r.request("+14155550054"))
	if n := len(r.log("originate", "+14155550053")); n != 0 {
		t.Errorf("a withdrawn request was dialed")
	}
}

func TestInbound_AgentOfTheNumberAnswersTheCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0.05")
	p := r.dialer()
	status, made := r.admin(p, "POST", "/numbers", `{"phone_e164":"+14155559000","agent_id":"`+r.agent.String()+`"}`)
	if status != 201 {
		t.Fatalf("POST numbers = %d %v", status, made)
	}
	ring := func(from, to string) string {
		var call struct {
			CallID string `json:"call_id"`
		}
		r.carrier("POST", "/inbound", `{"from":"`+from+`","to":"`+to+`"}`, &call)
		return call.CallID
	}
	called, withheld, unknown := ring("+14155557001", "+14155559000"), ring("", "+14155559000"), ring("+14155557001", "+14155559001")
	for id, from := range map[string]string{called: "+14155557001", withheld: "anonymous"} {
		facts := r.ends(uuid.MustParse(id))
		end := last(facts)
		if got := names(facts); got != "ringing answered ended analysed" {
			t.Errorf(`facts: names(facts) = %q, want "ringing answered ended analysed"`, got)
		} else if end.GetCallRequestId() != "" {
			t.Errorf("facts: end.GetCallRequestId() = %q, want it empty", end.GetCallRequestId())
		}
		c := end.GetCall()
		switch {
		case c.GetDirection() != "inbound":
			t.Errorf(`c.GetDirection() = %v, want "inbound"`, c.GetDirection())
		case c.GetFrom() != from:
			t.Errorf("c.GetFrom() = %v, want %v", c.GetFrom(), from)
		case c.GetStatus() != "completed":
			t.Errorf(`c.GetStatus() = %v, want "completed"`, c.GetStatus())
		case c.GetBillableSeconds() != 0:
			t.Errorf("c.GetBillableSeconds() = %v, want 0", c.GetBillableSeconds())
		case c.GetQueuedAt() != nil:
			t.Errorf("c.GetQueuedAt() = %v, want nil", c.GetQueuedAt())
		case c.GetDialedAt() != nil:
			t.Errorf("c.GetDialedAt() = %v, want nil", c.GetDialedAt())
		case c.GetAgentId() != r.agent.String():
			t.Errorf("c.GetAgentId() = %v, want %v", c.GetAgentId(), r.agent.String())
		case (c.GetContactId() == known.String()) != (from != "anonymous"):
			t.Errorf("(c.GetContactId() == known.String()) = %v, want %v",
				(c.GetContactId() == known.String()), (from != "anonymous"))
		}
	}
	var zones []string
	if err := r.pool.QueryRow(t.Context(),
		"SELECT array_agg(time_zone ORDER BY time_zone) FROM calls").Scan(&zones); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if !slices.Equal(zones, []string{"", "Asia/Tokyo"}) {
		t.Errorf("zones = %v, want %v", zones, []string{"", "Asia/Tokyo"})
	}
	await(
		t,
		"the call to an unassigned number is rejected",
		func() bool { return len(r.log("hangup", "+14155559001")) == 1 },
	)
	if facts := r.factsOf(unknown); len(facts) != 0 {
		t.Errorf("facts of a rejected call: %s", names(facts))
	}
}

func TestNumbers_CanBeAddedListedAndRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	p := r.dialer()
	body := func(phone, agent string) string { return `{"phone_e164":"` + phone + `","agent_id":"` + agent + `"}` }
	tests := []struct {
		name, body, code string
		status           int
	}{
		{"new number is added", body("+14155559100", r.agent.String()), "", 201},
		{"same number is refused the second time", body("+14155559100", r.agent.String()), "number_exists", 409},
		{"malformed number is refused", body("4155559100", r.agent.String()), "invalid_phone", 422},
		{"agent id that is no UUID is refused", body("+14155559101", "ida"), "validation_error", 422},
		{"missing number is refused", `{"agent_id":"` + r.agent.String() + `"}`, "validation_error", 422},
		{"unknown agent is refused", body("+14155559102", uuid.NewString()), "invalid_agent", 422},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, answer := r.admin(p, "POST", "/numbers", tt.body)
			code := ""
			if e, ok := answer["error"].(map[string]any); ok {
				code, _ = e["code"].(string)
			}
			if status != tt.status {
				t.Errorf("answer: status = %v, want %v; answer = %v", status, tt.status, answer)
			} else if code != tt.code {
				t.Errorf("answer: code = %v, want %v; answer = %v", code, tt.code, answer)
			}
		})
	}
	status, list := r.admin(p, "GET", "/numbers", "")
	items, _ := list["data"].([]any)
	if status != 200 {
		t.Fatalf("list: status = %v, want 200; list = %v", status, list)
	}
	if len(items) != 1 {
		t.Fatalf("list: length of items = %d, want 1; list = %v", len(items), list)
	}
	id := items[0].(map[string]any)["id"].(string)
	if status, one := r.admin(p, "GET", "/numbers/"+id, ""); status != 200 {
		t.Errorf("member: status = %v, want 200", status)
	} else if one["phone_e164"] != "+14155559100" {
		t.Errorf(`member: one["phone_e164"] = %q, want "+14155559100"`, one["phone_e164"])
	}
	r.withoutNumber()
	facts := r.ends(r.request("+14155550061"))
	if from := last(facts).GetCall().GetFrom(); from != "+14155559100" {
		t.Errorf("from = %s, want the agent's number", from)
	}
	if status, _ := r.admin(p, "DELETE", "/numbers/"+id, ""); status != 200 {
		t.Errorf("delete = %d", status)
	}
	if status, _ := r.admin(p, "GET", "/numbers/"+id, ""); status != 404 {
		t.Errorf("after delete = %d", status)
	}
}
