package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/proto/compliancev1"
)

func (r *fixture) preCheck(caller string) compliancev1.PreCheckServiceClient {
	return compliancev1.NewPreCheckServiceClient(http.DefaultClient, r.url,
		connect.WithInterceptors(r.peers[caller].ClientInterceptor(service)))
}

func (r *fixture) dialCheck(caller string) compliancev1.DialCheckServiceClient {
	return compliancev1.NewDialCheckServiceClient(http.DefaultClient, r.url,
		connect.WithInterceptors(r.peers[caller].ClientInterceptor(service)))
}

func (r *fixture) allowAllHours(t *testing.T) {
	t.Helper()
	r.policy(t, `{"window":{"start":"00:00","end":"24:00"}}`)
}

func TestInternalAPI_DialTimeCheckDeniesANumberAfterItsOptOut(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.allowAllHours(t)
	ctx, workspace, number := t.Context(), r.workspace.String(), "+15005550096"
	req := &compliancev1.PreCheckRequest{
		CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: workspace, ToE164: number,
		VariablesJson: []byte(`{"plan":"gold"}`), ScheduledFor: timestamppb.New(
			time.Now().Add(time.Hour).Truncate(time.Millisecond)),
	}
	first, err := r.preCheck("calls").PreCheck(ctx, connect.NewRequest(req))
	if err != nil {
		t.Fatalf("PreCheck: %v", err)
	}
	if first.Msg.GetAllowed() == nil {
		t.Fatal("PreCheck: first.Msg.GetAllowed() = nil, want a value")
	}
	allowed := first.Msg.GetAllowed()
	if string(allowed.GetVariablesJson()) != `{"plan":"gold"}` {
		t.Errorf("allowed: allowed.GetVariablesJson() = %q, want %q", string(allowed.GetVariablesJson()), `{"plan":"gold"}`)
	} else if !allowed.GetScheduledFor().AsTime().Equal(req.GetScheduledFor().AsTime()) {
		t.Error("allowed: scheduled_for differs from the requested time")
	}
	check := func(code string) {
		t.Helper()
		got, err := r.dialCheck("dialer").Check(ctx, connect.NewRequest(&compliancev1.CheckRequest{
			CallRequestId: req.GetCallRequestId(), WorkspaceId: workspace, ToE164: number, ContactId: allowed.GetContactId(),
		}))
		if err != nil {
			t.Fatalf("Check: error = %v", err)
		}
		if got := got.Msg.GetClosed().GetCode(); got != code {
			t.Errorf("Check: got.Msg.GetClosed().GetCode() = %v, want %v", got, code)
		}
		if got := (got.Msg.GetOpen() != nil); got != (code == "") {
			t.Errorf("Check: the gates are open = %v, want %v", got, (code == ""))
		}
	}
	check("")
	who, err := r.dialCheck("dialer").LookupCaller(ctx,
		connect.NewRequest(&compliancev1.LookupCallerRequest{WorkspaceId: workspace, PhoneE164: number}))
	if err != nil {
		t.Errorf("LookupCaller: %v", err)
	} else if who.Msg.GetContactId() != allowed.GetContactId() {
		t.Errorf("LookupCaller: who.Msg.GetContactId() = %v, want %v", who.Msg.GetContactId(), allowed.GetContactId())
	}
	heard := &compliancev1.RecordOptOutRequest{
		WorkspaceId: workspace, PhoneE164: number, CallId: uuid.Must(uuid.NewV7()).String(), HeardAt: timestamppb.Now(),
		Evidence: "never call me again",
	}
	for range 2 {
		if _, err := r.dialCheck("dialer").RecordOptOut(ctx, connect.NewRequest(heard)); err != nil {
			t.Fatal(err)
		}
	}
	check("recipient_dnd")
	records := r.operator(t, http.MethodGet, "/admin/v1/workspaces/%s/consent-records", "")
	data, _ := records.body["data"].([]any)
	if len(data) != 1 {
		t.Fatalf("records = %s, want one", records.raw)
	}
	rec, _ := data[0].(map[string]any)
	evidence, _ := rec["evidence"].(map[string]any)
	if rec["source"] != "call" {
		t.Errorf("record: source = %v, want call", rec["source"])
	}
	if rec["actor"] != "call:"+heard.GetCallId() {
		t.Errorf("record: actor = %v, want %v", rec["actor"], "call:"+heard.GetCallId())
	}
	if evidence["said"] != "never call me again" {
		t.Errorf("record: said = %v, want never call me again", evidence["said"])
	}
	if evidence["call_id"] != heard.GetCallId() {
		t.Errorf("record: call_id = %v, want %v", evidence["call_id"], heard.GetCallId())
	}
	again := &compliancev1.PreCheckRequest{CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: workspace,
		ToE164: number}
	second, err := r.preCheck("calls").PreCheck(ctx, connect.NewRequest(again))
	if err != nil {
		t.Errorf("PreCheck after the opt-out: %v", err)
	} else if second.Msg.GetRefused().GetCode() != "recipient_dnd" {
		t.Errorf(`PreCheck after the opt-out: second.Msg.GetRefused().GetCode() = %q, want "recipient_dnd"`,
			second.Msg.GetRefused().GetCode())
	}
}

func TestLookupCaller_CreatesNoContact(t *testing.T) {
	t.Parallel()
	r := start(t)
	got, err := r.dialCheck("dialer").LookupCaller(t.Context(),
		connect.NewRequest(&compliancev1.LookupCallerRequest{WorkspaceId: r.workspace.String(), PhoneE164: "+14155552671"}))
	if err != nil {
		t.Fatalf("LookupCaller: error = %v", err)
	}
	if got := got.Msg.GetContactId(); got != "" {
		t.Errorf("LookupCaller: got.Msg.GetContactId() = %v, want \"\"", got)
	}
	if got := got.Msg.GetTimeZone(); got != "America/Los_Angeles" {
		t.Errorf("LookupCaller: got.Msg.GetTimeZone() = %v, want America/Los_Angeles", got)
	}
	r.checkResponse(t, r.customer(t, http.MethodGet, "/v1/opt-outs/+14155552671", ""), http.StatusNotFound, "not_found")
}

// The zone of a toll-free number is not known, so the response contains the contact's zone.
func TestCheck_ReturnsTheTimeZoneOfThePerson(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.allowAllHours(t)
	r.create(t, `{"phone_e164":"+18005551234","metadata":{"time_zone":"Asia/Tokyo"}}`)
	for number, want := range map[string]string{"+18005551234": "Asia/Tokyo", "+18005551235": "",
		"+14155552671": "America/Los_Angeles"} {
		got, err := r.dialCheck("dialer").Check(t.Context(), connect.NewRequest(&compliancev1.CheckRequest{
			CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: r.workspace.String(), ToE164: number,
		}))
		if err != nil {
			t.Fatalf("error = %v", err)
		}
		if got.Msg.GetOpen() == nil {
			t.Fatalf("Check of %s = %v %v, want it open, in %q", number, got, err, want)
		}
		if got := got.Msg.GetOpen().GetTimeZone(); got != want {
			t.Errorf("got.Msg.GetOpen().GetTimeZone() = %v, want %v", got, want)
		}
	}
}

func TestCheck_DefersOnlyIfTheRequestAllowsIt(t *testing.T) {
	t.Parallel()
	r := start(t)
	// The window opens for two minutes in twelve hours, so the window is closed now. One minute
	// would be too short for a dial.
	at := time.Now().UTC().Add(12*time.Hour).Format("15") + ":3"
	r.policy(t, `{"window":{"start":"`+at+`0","end":"`+at+`2"},"timezone":"UTC"}`)
	req := &compliancev1.CheckRequest{CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: r.workspace.String(),
		ToE164: "+15005550001"}
	if got, err := r.dialCheck("dialer").Check(t.Context(), connect.NewRequest(req)); err != nil {
		t.Errorf("Check: %v", err)
	} else if got.Msg.GetClosed().GetCode() != "outside_calling_hours" {
		t.Errorf(`Check: got.Msg.GetClosed().GetCode() = %q, want "outside_calling_hours"`, got.Msg.GetClosed().GetCode())
	}
	req.ScheduleIfOutsideHours = true
	got, err := r.dialCheck("dialer").Check(t.Context(), connect.NewRequest(req))
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	if got.Msg.GetLater() == nil {
		t.Fatal("Check: got.Msg.GetLater() = nil, want a value")
	}
	if opens := got.Msg.GetLater().GetScheduledFor().AsTime(); opens.Format("15:04:05") != at+"0:00" {
		t.Errorf(`AsTime: opens.Format("15:04:05") = %q, want %q`, opens.Format("15:04:05"), at+"0:00")
	} else if got := time.Until(opens); got <= 0 {
		t.Errorf("AsTime: time.Until(opens) = %v, want more than 0", got)
	}
}

func TestPreCheck_UsesTheContactsZoneIfTheNumberHasNone(t *testing.T) {
	t.Parallel()
	r := start(t)
	day := time.Now().UTC().AddDate(0, 0, 3).Truncate(24 * time.Hour)
	code := func(hour int) string {
		t.Helper()
		got, err := r.preCheck("calls").PreCheck(t.Context(), connect.NewRequest(&compliancev1.PreCheckRequest{
			CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: r.workspace.String(), ToE164: "+18005551234",
			ScheduledFor: timestamppb.New(day.Add(time.Duration(hour) * time.Hour)),
		}))
		if err != nil {
			t.Fatal(err)
		}
		return got.Msg.GetRefused().GetCode()
	}
	if got := code(12); got != "outside_calling_hours" {
		t.Errorf("toll-free without a zone: code = %q, want outside_calling_hours", got)
	}
	r.create(t, `{"phone_e164":"+18005551234","metadata":{"time_zone":"Asia/Tokyo"}}`)
	if got := code(3); got != "" {
		t.Errorf("at noon in Tokyo: code = %q, want none", got)
	}
	if got := code(12); got != "outside_calling_hours" {
		t.Errorf("at nine in the evening in Tokyo: code = %q, want outside_calling_hours", got)
	}
}

func TestInternalAPI_RefusesServicesWithoutPermission(t *testing.T) {
	t.Parallel()
	r := start(t)
	pre := connect.NewRequest(&compliancev1.PreCheckRequest{})
	check := func() *connect.Request[compliancev1.CheckRequest] {
		return connect.NewRequest(&compliancev1.CheckRequest{})
	}
	_, byDialer := r.preCheck("dialer").PreCheck(t.Context(), pre)
	_, byCalls := r.dialCheck("calls").Check(t.Context(), check())
	_, anonymous := compliancev1.NewDialCheckServiceClient(http.DefaultClient, r.url).Check(t.Context(), check())
	_, malformed := r.dialCheck("dialer").Check(t.Context(), check())
	for name, got := range map[string]struct {
		err  error
		want connect.Code
	}{
		"pre-check by the dialer":     {err: byDialer, want: connect.CodePermissionDenied},
		"dial check by calls":         {err: byCalls, want: connect.CodePermissionDenied},
		"dial check without a caller": {err: anonymous, want: connect.CodeUnauthenticated},
		"an empty request":            {err: malformed, want: connect.CodeInvalidArgument},
	} {
		if connect.CodeOf(got.err) != got.want {
			t.Errorf("%s: %v, want %v", name, got.err, got.want)
		}
	}
}

func TestInternalAPI_IsUnavailableWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.pool.Close()
	req := &compliancev1.CheckRequest{CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: r.workspace.String(),
		ToE164: "+15005550001"}
	if _, err := r.dialCheck("dialer").Check(t.Context(), connect.NewRequest(req)); connect.CodeOf(
		err) != connect.CodeUnavailable {
		t.Errorf("Check = %v, want unavailable", err)
	}
	optOut := &compliancev1.RecordOptOutRequest{WorkspaceId: r.workspace.String(), PhoneE164: "+15005550001",
		CallId: uuid.NewString()}
	if _, err := r.dialCheck("dialer").RecordOptOut(t.Context(),
		connect.NewRequest(optOut)); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("OptOut = %v, want unavailable", err)
	}
}
