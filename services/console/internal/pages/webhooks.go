package pages

import (
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

const subscriptionsPath = "/v1/webhook-subscriptions"

func (s *Server) webhookRoutes() []route {
	return []route{
		{"GET /w/{workspace}/webhooks", showSubscriptions},
		{"GET /w/{workspace}/webhooks/new", permitted("build", showNewSubscription)},
		{"POST /w/{workspace}/webhooks/new", createSubscription},
		{"GET /w/{workspace}/webhooks/{subscription}", showSubscription},
		{"POST /w/{workspace}/webhooks/{subscription}/status", changeSubscriptionStatus},
		{"POST /w/{workspace}/webhooks/{subscription}/test", testSubscription},
		{"POST /w/{workspace}/webhooks/{subscription}/rotate", rotateSecret},
		{"POST /w/{workspace}/webhooks/{subscription}/replay", replayDeliveries},
		{"POST /w/{workspace}/webhooks/{subscription}/delete", deleteSubscription},
		{"GET /w/{workspace}/webhooks/{subscription}/deliveries/{delivery}", showDelivery},
		{"POST /w/{workspace}/webhooks/{subscription}/deliveries/{delivery}/resend", resendDelivery},
	}
}

// eventTypes lists the types that a subscription can choose. The first ordinaryEventTypes of them
// are ordinary, the rest are opt-in.
var eventTypes = []openapi.EventType{
	"call.ringing", "call.answered", "call.completed", "call.failed", "call.no_answer", "call.busy",
	"call.analyzed", "call.recording_ready", "call_request.blocked", "call_request.failed", "call_request.canceled",
	"webhook_subscription.failing", "webhook_subscription.failed", "wallet.low_balance",
}

const ordinaryEventTypes = 6

type subscriptionsData struct {
	openapi.WebhookSubscriptionPage
	Last string // the id of the last item, if there are more
}

func showSubscriptions(v *visit) (view, error) {
	var data subscriptionsData
	err := concurrently(read(v, &data.WebhookSubscriptionPage, subscriptionsPath, v.listQuery()))
	if data.HasMore {
		data.Last = data.Data[len(data.Data)-1].ID.String()
	}
	return view{template: "webhooks", title: "webhooks.title", nav: "webhooks", data: data}, err
}

type newSubscriptionData struct {
	Name, URL string
	Chosen    map[openapi.EventType]bool
	Ordinary  []openapi.EventType
	OptIn     []openapi.EventType
	Error     *gateway.Error
}

func newSubscription() newSubscriptionData {
	data := newSubscriptionData{Chosen: map[openapi.EventType]bool{}, Ordinary: eventTypes[:ordinaryEventTypes],
		OptIn: eventTypes[ordinaryEventTypes:]}
	for _, event := range data.Ordinary {
		data.Chosen[event] = true
	}
	return data
}

func showNewSubscription(*visit) (view, error) {
	return view{template: "webhook_new", title: "webhooks.new", nav: "webhooks", data: newSubscription()}, nil
}

// secretData contains a signing secret, which the gateway returns only once.
type secretData struct {
	ID     uuid.UUID
	Secret string
}

func createSubscription(v *visit) (view, error) {
	data := newSubscription()
	data.Name, data.URL, data.Chosen = v.form("name"), v.form("url"), map[openapi.EventType]bool{}
	events := []openapi.EventType{}
	for _, event := range v.r.PostForm["events"] {
		events = append(events, openapi.EventType(event))
		data.Chosen[openapi.EventType(event)] = true
	}
	created, err := gateway.Post[openapi.WebhookSubscriptionCreated](v.r.Context(), v.Session, subscriptionsPath,
		openapi.CreateWebhookSubscription{Name: data.Name, URL: data.URL, Events: events})
	if refused := gateway.AsError(err); refused != nil && refused.Status == http.StatusUnprocessableEntity {
		data.Error = refused
		return view{template: "webhook_new", title: "webhooks.new", nav: "webhooks", data: data, status: refused.Status}, nil
	}
	return view{template: "webhook_secret", title: "webhooks.created", nav: "webhooks",
		data: secretData{created.ID, created.SigningSecret}}, err
}

type subscriptionData struct {
	openapi.WebhookSubscriptionDetail
	Deliveries openapi.WebhookDeliveryPage
	Statuses   []string
	Types      []openapi.EventType
	Filtered   bool
	Last       string // the id of the last delivery, if there are more
	// Since is the start of yesterday and Until is the end of today, as values of form fields.
	Since, Until string
}

func showSubscription(v *visit) (view, error) {
	path, err := v.subscriptionPath()
	if err != nil {
		return view{}, err
	}
	query := v.listQuery("status", "event_type", "call_id")
	data := subscriptionData{
		Statuses: []string{"queued", "held", "delivered", "failed", "skipped"}, Types: eventTypes, Filtered: len(query) > 1,
	}
	data.Since, data.Until = replayPeriod(time.Now().In(v.settings.Zone))
	err = concurrently(
		read(v, &data.WebhookSubscriptionDetail, path, nil),
		read(v, &data.Deliveries, path+"/deliveries", query),
	)
	if data.Deliveries.HasMore {
		data.Last = data.Deliveries.Data[len(data.Deliveries.Data)-1].ID.String()
	}
	return view{template: "webhook", title: "webhooks.title", heading: data.Name, nav: "webhooks", data: data}, err
}

// replayPeriod returns the preset period of a replay, as values of form fields: from the start of
// yesterday to the end of today, in the time zone of now.
func replayPeriod(now time.Time) (since, until string) {
	const format = "2006-01-02T00:00"
	return now.AddDate(0, 0, -1).Format(format), now.AddDate(0, 0, 1).Format(format)
}

// subscriptionPath returns the path of the page's subscription in the API.
func (v *visit) subscriptionPath() (string, error) {
	id, err := uuid.Parse(v.r.PathValue("subscription"))
	if err != nil {
		return "", errNotFound
	}
	return subscriptionsPath + "/" + id.String(), nil
}

// subscriptionPage returns the address of the page's subscription.
func (v *visit) subscriptionPage() string { return v.path("webhooks", v.r.PathValue("subscription")) }

func changeSubscriptionStatus(v *visit) (view, error) {
	path, err := v.subscriptionPath()
	if err != nil {
		return view{}, err
	}
	status, done := v.form("status"), "subscription_resumed"
	if status == "paused" {
		done = "subscription_paused"
	}
	_, err = gateway.Do[openapi.WebhookSubscription](v.r.Context(), v.Session, gateway.Request{Method: http.MethodPatch,
		Path: path, Body: openapi.UpdateWebhookSubscription{Status: &status}})
	return view{redirect: v.subscriptionPage(), done: done}, err
}

func testSubscription(v *visit) (view, error) {
	path, err := v.subscriptionPath()
	if err != nil {
		return view{}, err
	}
	_, err = gateway.Post[map[string]any](v.r.Context(), v.Session, path+"/test", nil)
	return view{redirect: v.subscriptionPage(), done: "subscription_tested"}, err
}

func rotateSecret(v *visit) (view, error) {
	path, err := v.subscriptionPath()
	if err != nil {
		return view{}, err
	}
	made, err := gateway.Post[openapi.WebhookSecret](v.r.Context(), v.Session, path+"/rotate-secret", nil)
	return view{template: "webhook_secret", title: "webhooks.rotated", nav: "webhooks",
		data: secretData{uuid.MustParse(v.r.PathValue("subscription")), made.SigningSecret}}, err
}

// replayDeliveries queues the deliveries of a period again. The times of the form are in the time
// zone of the person.
func replayDeliveries(v *visit) (view, error) {
	path, err := v.subscriptionPath()
	if err != nil {
		return view{}, err
	}
	body := map[string]any{"only_failed": v.form("only_failed") != ""}
	if at, ok := v.localTime(v.form("since")); ok {
		body["since"] = at
	}
	if at, ok := v.localTime(v.form("until")); ok {
		body["until"] = at
	}
	queued, err := gateway.Post[struct {
		Deliveries int `json:"deliveries"`
	}](v.r.Context(), v.Session, path+"/replay", body)
	done := "replayed"
	if queued.Deliveries == 0 {
		done = "replayed_none"
	}
	return view{redirect: v.subscriptionPage() + "?" + url.Values{"status": {"queued"}}.Encode(), done: done}, err
}

// deleteSubscription deletes a subscription. The person must type its name as a confirmation.
func deleteSubscription(v *visit) (view, error) {
	path, err := v.subscriptionPath()
	if err != nil {
		return view{}, err
	}
	found, err := gateway.Get[openapi.WebhookSubscriptionDetail](v.r.Context(), v.Session, path, nil)
	if err != nil {
		return view{}, err
	}
	if !v.confirmed(found.Name) {
		return view{redirect: v.subscriptionPage(), done: "not_confirmed"}, nil
	}
	_, err = gateway.Do[map[string]any](v.r.Context(), v.Session, gateway.Request{Method: http.MethodDelete, Path: path})
	return view{redirect: v.path("webhooks"), done: "subscription_deleted"}, err
}

type deliveryData struct {
	openapi.WebhookDeliveryDetail
	Subscription openapi.WebhookSubscriptionDetail
}

func (v *visit) deliveryPath() (string, error) {
	id, err := uuid.Parse(v.r.PathValue("delivery"))
	if err != nil {
		return "", errNotFound
	}
	return "/v1/webhook-deliveries/" + id.String(), nil
}

func showDelivery(v *visit) (view, error) {
	subscription, err := v.subscriptionPath()
	if err != nil {
		return view{}, err
	}
	path, err := v.deliveryPath()
	if err != nil {
		return view{}, err
	}
	var data deliveryData
	err = concurrently(
		read(v, &data.WebhookDeliveryDetail, path, nil),
		read(v, &data.Subscription, subscription, nil),
	)
	return view{template: "webhook_delivery", title: "webhooks.delivery", nav: "webhooks", data: data}, err
}

func resendDelivery(v *visit) (view, error) {
	path, err := v.deliveryPath()
	if err != nil {
		return view{}, err
	}
	_, err = gateway.Post[map[string]any](v.r.Context(), v.Session, path+"/resend", nil)
	return view{redirect: v.path("webhooks", v.r.PathValue("subscription"), "deliveries", v.r.PathValue("delivery")),
		done: "resent"}, err
}
