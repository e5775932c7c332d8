package contract

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const version = "2026-06-04"

func TestService_OpenPathsNeedNoKey(t *testing.T) {
	for _, key := range []string{"", "nonsense"} {
		c := customer(t, key)
		described := c.want(t, 200, "GET", "/openapi.json", nil)
		var document struct {
			OpenAPI string
			Info    struct{ Version string }
			Paths   map[string]any
		}
		err := json.Unmarshal([]byte(described.body), &document)
		if err != nil {
			t.Fatal(err)
		}
		sharedstack.Equal(t, "document.Info.Version", document.Info.Version, version)
		sharedstack.Equal(t, "strings.HasPrefix(document.OpenAPI, '3.1')", strings.HasPrefix(document.OpenAPI, "3.1"), true)
		if described.body != string(openapi.Description) {
			t.Error("openapi.json is not the document of this build")
		}
		page := c.want(t, 200, "GET", "/docs", nil)
		plain := &client{base: c.base, http: &http.Client{Transport: transport("")}}
		assets := regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(page.body, -1)
		for _, asset := range assets {
			if !strings.HasPrefix(asset[1], "/") {
				t.Fatalf(`/docs asks elsewhere: asset[1] = %q, want it to begin with "/"`, asset[1])
			}
			if strings.HasPrefix(asset[1], "//") {
				t.Fatalf(`/docs asks elsewhere: asset[1] = %q, want it not to begin with "//"`, asset[1])
			}
			if got := plain.want(t, 200, "GET", asset[1], nil); got.header.Get("Service-Version") != version {
				t.Errorf("%s has Service-Version %q", asset[1], got.header.Get("Service-Version"))
			}
		}
		if policy := page.header.Get("Content-Security-Policy"); len(assets) == 0 {
			t.Error("length of assets = 0, want more")
		} else if !strings.HasPrefix(policy, "default-src 'none'") {
			t.Errorf(`policy = %q, want it to begin with "default-src 'none'"`, policy)
		}
		c.want(t, 200, "GET", "/readyz", nil)
		for _, path := range []string{"/openapi.json", "/docs", "/readyz"} {
			c.want(t, 200, "HEAD", path, nil)
			c.refused(t, 405, "method_not_allowed", "POST", path, nil)
		}
	}
}

// This test sends requests that match no documented operation. For all other requests, the
// validating transport requires the version header.
func TestService_VersionHeaderIsInEveryResponse(t *testing.T) {
	for request, code := range map[string]string{
		"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n":                                                                      "bad_request",
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n":                               "headers_too_large",
		"GET /v1/calls HTTP/1.1\r\nHost: x\r\nExpect: more\r\nContent-Length: 0\r\n\r\n":                            "expectation_failed",
		"GET /v1/calls HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 198.51.100.8\r\n\r\n":                                "invalid_api_key",
		"GET /v1/calls HTTP/1.1\r\nHost: x\r\nService-Version: 2020-01-01\r\nX-Forwarded-For: 198.51.100.8\r\n\r\n": "invalid_api_key",
	} {
		got := sendRaw(t, request)
		if err := stack(t).document.Answer("GET", &url.URL{Path: "/v1/calls"}, got.status, got.header, []byte(got.body)); err != nil {
			t.Error(err)
		}
		if got.code() != code {
			t.Errorf("%.60q: got.code() = %q, want %q; got.status = %d; got.body = %s",
				request, got.code(), code, got.status, got.body)
		} else if got.header.Get("Service-Version") != version {
			t.Errorf(`%.60q: got.header.Get("Service-Version") = %v, want %v; got.status = %d; got.body = %s`,
				request, got.header.Get("Service-Version"), version, got.status, got.body)
		}
	}
}

// TestGeneratedClient_PlacesACallAndReceivesItsWebhook uses the generated client only, as a
// customer does.
func TestGeneratedClient_PlacesACallAndReceivesItsWebhook(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	hooks := stack(t).Hooks
	ctx := t.Context()
	api := typed(t, w.write)
	agent, err := uuid.Parse(w.agent)
	if err != nil {
		t.Fatal(err)
	}
	path := "/" + w.id
	subscribed := requireStatus(api.CreateWebhookSubscriptionWithResponse(ctx, openapi.CreateWebhookSubscription{
		Name: "client", URL: hooks.URL + path, Events: []openapi.EventType{"call.completed"},
	}))(t, 201).JSON201
	hooks.SetSecret(path, subscribed.SigningSecret)

	to := number(1)
	contact := requireStatus(api.CreateContactWithResponse(ctx,
		openapi.CreateContact{PhoneE164: to, Name: pointer("Ada")}))(t, 201).JSON201
	sharedstack.Equal(t, "contact.PhoneE164", contact.PhoneE164, to)
	sharedstack.Equal(t, "stage.Value(contact.Name)", sharedstack.Value(contact.Name), "Ada")
	sharedstack.Equal(t, "contact.DndStatus", contact.DndStatus, "unknown")
	changed := requireStatus(api.UpdateContactWithResponse(ctx, contact.ID, openapi.UpdateContact{
		Metadata: &map[string]json.RawMessage{"tier": json.RawMessage(`"gold"`)},
	}))(t, 200).JSON200
	read := requireStatus(api.ReadContactWithResponse(ctx, contact.ID))(t, 200).JSON200
	if string(read.Metadata["tier"]) != `"gold"` {
		t.Errorf(`contact: read.Metadata["tier"] = %q, want %q`, string(read.Metadata["tier"]), `"gold"`)
	} else if !read.UpdatedAt.Equal(changed.UpdatedAt.Time) {
		t.Errorf("contact: read.UpdatedAt = %v, want %v", read.UpdatedAt, changed.UpdatedAt.Time)
	}

	order := openapi.CreateCall{
		AgentID: agent, To: to, ContactID: &contact.ID, ExternalRef: pointer("order-1042"), IdempotencyKey: pointer("k"),
		Variables: json.RawMessage(`{"first_name":"Ada"}`), ScheduleIfOutsideHours: pointer(true),
	}
	request := requireStatus(api.CreateCallWithResponse(ctx, nil, order))(t, 202).JSON202
	if again := requireStatus(api.CreateCallWithResponse(ctx,
		&openapi.CreateCallParams{IdempotencyKey: pointer("other")}, order))(t, 200).JSON200; again.ID != request.ID {
		t.Errorf("replay = %s, want %s", again.ID, request.ID)
	}
	w.ended(t, request.ID.String())
	done := requireStatus(api.ReadCallRequestWithResponse(ctx, request.ID))(t, 200).JSON200
	sharedstack.Equal(t, "done.Status", done.Status, "completed")
	if done.CallID == nil {
		t.Errorf("done.CallID = %v, want a value", done.CallID)
	}
	if done.DialedAt == nil {
		t.Errorf("done.DialedAt = %v, want a value", done.DialedAt)
	}
	if done.CompletedAt == nil {
		t.Errorf("done.CompletedAt = %v, want a value", done.CompletedAt)
	}
	if done.ErrorCode != nil {
		t.Errorf("done.ErrorCode = %v, want nil", done.ErrorCode)
	}
	if t.Failed() {
		t.FailNow()
	}
	var call *openapi.Call
	until(t, "the call is charged", func() bool {
		call = requireStatus(api.ReadCallWithResponse(ctx, *done.CallID))(t, 200).JSON200
		return call.CreditsCharged != nil && call.Summary != nil
	})
	sharedstack.Equal(t, "call.Status", call.Status, "completed")
	sharedstack.Equal(t, "stage.Value(call.ContactID)", sharedstack.Value(call.ContactID), contact.ID)
	sharedstack.Equal(t, "stage.Value(call.Outcome)", sharedstack.Value(call.Outcome), "interested")
	if sharedstack.Value(call.Timings.TalkSeconds) < 1 {
		t.Errorf("call.Timings.TalkSeconds = %v, want at least %v", sharedstack.Value(call.Timings.TalkSeconds), 1)
	}
	calls := requireStatus(api.ListCallsWithResponse(ctx, &openapi.ListCallsParams{
		AgentID: &agent, ContactID: &contact.ID, ExternalRef: pointer("order-1042"), Limit: pointer(1), Status: pointer(openapi.CallStatus("completed")),
	}))(t, 200).JSON200
	if len(calls.Data) != 1 {
		t.Fatalf("length of calls.Data = %v, want %v", len(calls.Data), 1)
	}
	sharedstack.Equal(t, "calls.Data[0].ID", calls.Data[0].ID, call.CallID)
	sharedstack.Equal(t, "calls.HasMore", calls.HasMore, false)
	sharedstack.Equal(t, "talk_seconds in the list", calls.Data[0].TalkSeconds, call.Timings.TalkSeconds)
	if got := requireStatus(api.ListCallRequestsWithResponse(ctx,
		&openapi.ListCallRequestsParams{ExternalRef: pointer("order-1042")}))(t, 200).JSON200; len(got.Data) != 1 {
		t.Errorf("call requests = %+v", got)
	}
	if got := requireStatus(api.ListContactsWithResponse(ctx, &openapi.ListContactsParams{Phone: &to}))(t,
		200).JSON200; len(got.Data) != 1 {
		t.Errorf("contacts: length of got.Data = %d, want 1", len(got.Data))
	} else if string(got.Data[0].Variables["first_name"]) != `"Ada"` {
		t.Errorf(`contacts: got.Data[0].Variables["first_name"] = %q, want %q`,
			string(got.Data[0].Variables["first_name"]), `"Ada"`)
	}
	requireStatus(api.ReadTranscriptWithResponse(ctx, call.CallID))(t, 404)
	requireStatus(api.ReadRecordingWithResponse(ctx, call.CallID))(t, 404)
	got := requireStatus(api.ReadWalletWithResponse(ctx))(t, 200).JSON200
	sharedstack.Equal(t, "got.Currency", got.Currency, "USD")
	if got.LastTransactionAt == nil {
		t.Errorf("got.LastTransactionAt = %v, want a value", got.LastTransactionAt)
	}
	if decimal(t, got.Balance.String()).Cmp(decimal(t, "10")) >= 0 {
		t.Errorf("balance = %v, want less than 10", got.Balance)
	}
	later := requireStatus(api.CreateCallWithResponse(ctx, nil, openapi.CreateCall{AgentID: agent, To: number(1),
		ScheduledFor: pointer(openapi.TimestampOf(call.Timings.EndedAt.AddDate(0, 0, 1)))}))(t, 202).JSON202
	if got := requireStatus(api.CancelCallRequestWithResponse(ctx, later.ID))(t, 200).JSON200; got.Status != "canceled" {
		t.Errorf("canceled = %+v", got)
	}
	w.clientOptsOut(t, api, to)
	w.clientMindsTheHook(t, api, subscribed.ID)
}

func (w *tenant) clientOptsOut(t *testing.T, api *openapi.ClientWithResponses, to string) {
	t.Helper()
	ctx := t.Context()
	if got := requireStatus(api.CreateOptOutWithResponse(ctx,
		openapi.CreateOptOut{PhoneE164: to, Reason: pointer("asked")}))(t, 200).JSON200; got.DndStatus != "dnd" {
		t.Errorf("opt-out = %+v", got)
	}
	if got := requireStatus(api.ReadOptOutWithResponse(ctx, to))(t, 200).JSON200; got.DndStatus != "dnd" {
		t.Errorf(`opt-out: got.DndStatus = %q, want "dnd"`, got.DndStatus)
	} else if got.PhoneE164 != to {
		t.Errorf("opt-out: got.PhoneE164 = %v, want %v", got.PhoneE164, to)
	}
	if got := requireStatus(api.DeleteOptOutWithResponse(ctx, to))(t, 200).JSON200; got.DndStatus != "clean" {
		t.Errorf("opt-out = %+v", got)
	}
}

func (w *tenant) clientMindsTheHook(t *testing.T, api *openapi.ClientWithResponses, id uuid.UUID) {
	t.Helper()
	ctx := t.Context()
	until(t, "the event of the call arrives", func() bool {
		return slices.ContainsFunc(stack(t).Hooks.Deliveries(w.id), func(d kit.Delivery) bool { return d.Type == "call.completed" && d.Signed })
	})
	rotated := requireStatus(api.RotateWebhookSecretWithResponse(ctx, id))(t, 200).JSON200
	stack(t).Hooks.SetSecret("/"+w.id, rotated.SigningSecret)
	if got := requireStatus(api.TestWebhookSubscriptionWithResponse(ctx, id))(t, 202).JSON202; !got.Queued {
		t.Errorf("test = %+v", got)
	}
	w.clientReadsDeliveries(t, api, id)
	paused := requireStatus(api.UpdateWebhookSubscriptionWithResponse(ctx, id,
		openapi.UpdateWebhookSubscription{Status: pointer("paused")}))(t, 200).JSON200
	if paused.Status != "paused" {
		t.Errorf("paused = %+v", paused)
	}
	got := requireStatus(api.ListWebhookSubscriptionsWithResponse(ctx, nil))(t, 200).JSON200
	if len(got.Data) != 1 {
		t.Fatalf("length of got.Data = %v, want %v", len(got.Data), 1)
	}
	sharedstack.Equal(t, "got.Data[0].ID", got.Data[0].ID, id)
	sharedstack.Equal(t, "got.Data[0].Status", got.Data[0].Status, "paused")
	if got := requireStatus(api.DeleteWebhookSubscriptionWithResponse(ctx, id))(t, 200).JSON200; !got.Deleted {
		t.Error("deleted: got.Deleted = false, want true")
	} else if got.ID != id {
		t.Errorf("deleted: got.ID = %v, want %v", got.ID, id)
	}
	requireStatus(api.ReadReadinessWithResponse(ctx))(t, 200)
	requireStatus(api.ReadInterfaceDescriptionWithResponse(ctx))(t, 200)
	requireStatus(api.ReadReferenceWithResponse(ctx))(t, 200)
}

func (w *tenant) clientReadsDeliveries(t *testing.T, api *openapi.ClientWithResponses, id uuid.UUID) {
	t.Helper()
	ctx := t.Context()
	delivered, completed := openapi.WebhookDeliveryStatusDelivered, openapi.EventTypeCallCompleted
	filter := &openapi.ListWebhookDeliveriesParams{Status: &delivered, EventType: &completed}
	until(t, "the result of the delivery is stored", func() bool {
		return len(requireStatus(api.ListWebhookDeliveriesWithResponse(ctx, id, filter))(t, 200).JSON200.Data) == 1
	})
	listed := requireStatus(api.ListWebhookDeliveriesWithResponse(ctx, id, filter))(t, 200).JSON200.Data[0]
	one := requireStatus(api.ReadWebhookDeliveryWithResponse(ctx, listed.ID))(t, 200).JSON200
	var event openapi.CallEvent
	if err := json.Unmarshal(one.Event, &event); err != nil {
		t.Fatalf("event: %v", err)
	}
	sharedstack.Equal(t, "event.ID", event.ID, listed.EventID)
	sharedstack.Equal(t, "length of one.Attempts", len(one.Attempts), 1)
	if got := requireStatus(api.ReadWebhookSubscriptionWithResponse(ctx, id))(t, 200).JSON200; got.LastError != nil {
		t.Errorf("LastError = %q, want null", *got.LastError)
	}
	if got := requireStatus(api.ResendWebhookDeliveryWithResponse(ctx, listed.ID))(t, 202).JSON202; got.ID != listed.ID {
		t.Errorf("resent = %s, want %s", got.ID, listed.ID)
	}
	future := openapi.ReplayWebhookDeliveries{Since: openapi.TimestampOf(time.Now().Add(time.Hour))}
	if got := requireStatus(
		api.ReplayWebhookDeliveriesWithResponse(ctx, id, future),
	)(
		t,
		202,
	).JSON202; got.Deliveries != 0 {
		t.Errorf("replayed deliveries = %d, want 0", got.Deliveries)
	}
}

func typed(t *testing.T, c *client) *openapi.ClientWithResponses {
	t.Helper()
	api, err := openapi.NewClientWithResponses(c.base, openapi.WithHTTPClient(c.http), openapi.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+c.key)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// requireStatus returns a function that requires the status of a response of the generated client.
func requireStatus[T interface{ StatusCode() int }](response T, err error) func(t *testing.T, status int) T {
	return func(t *testing.T, status int) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if got := response.StatusCode(); got != status {
			t.Fatalf("%T = %d, want %d", response, got, status)
		}
		return response
	}
}

func pointer[T any](value T) *T { return &value }
