package webhooks_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/test/kit"
)

type event struct {
	id, call string
	record   *kgo.Record
}

// terminalEvents returns the terminal events of n calls, in the form in which the service `calls`
// publishes events.
func terminalEvents(t testing.TB, workspace string, n int) []event {
	t.Helper()
	all := make([]event, n)
	for i := range all {
		call, now := uuid.Must(uuid.NewV7()), time.Now().UTC()
		id := uuid.NewSHA1(call, []byte("call.completed"))
		body, err := json.Marshal(map[string]any{
			"id": id, "type": "call.completed", "api_version": "2026-06-04", "created_at": now.Format(time.RFC3339Nano), "workspace_id": workspace,
			"sequence": 1, "data": map[string]any{"call_id": call, "status": "completed"},
		})
		if err != nil {
			t.Fatal(err)
		}
		fact := &eventv1.CallEvent{
			CallId: call.String(), WorkspaceId: workspace, OccurredAt: timestamppb.New(now),
			Event: &eventv1.CallEvent_Public{Public: &eventv1.PublicEvent{EventId: id.String(), Type: "call.completed", Sequence: 1, Body: body}},
		}
		value, err := proto.Marshal(fact)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = event{id: id.String(), call: call.String(), record: &kgo.Record{
			Topic: kafka.CallEvents.Name, Key: []byte(call.String()), Value: value, Headers: []kgo.RecordHeader{
				{Key: kafka.HeaderID, Value: []byte(uuid.NewString())},
				{Key: kafka.HeaderType, Value: []byte(fact.ProtoReflect().Descriptor().FullName())},
				{Key: kafka.HeaderWorkspaceID, Value: []byte(workspace)},
			},
		}}
	}
	return all
}

// publish returns when Kafka has acknowledged all events. Any goroutine can call publish.
func (w *testStack) publish(t testing.TB, events ...event) {
	t.Helper()
	records := make([]*kgo.Record, len(events))
	for i, ev := range events {
		records[i] = ev.record
	}
	if err := w.bus.ProduceSync(context.WithoutCancel(t.Context()), records...).FirstErr(); err != nil {
		t.Errorf("produce %d events: %v", len(events), err)
	}
}

// customer is a workspace with one subscription.
type customer struct {
	*kit.Workspace
	w *testStack
	// own and admin are the paths of the subscription in the two APIs.
	own, admin string
	id, secret string
}

func (w *testStack) customer(t testing.TB, url string) *customer {
	t.Helper()
	tenant, err := w.NewWorkspace(t.Context(), t.Name(), "1")
	if err != nil {
		t.Fatal(err)
	}
	c := &customer{Workspace: tenant, w: w}
	c.id, c.secret = c.subscribe(t, url)
	c.own = "/v1/webhook-subscriptions/" + c.id
	c.admin = "/admin/v1/workspaces/" + c.ID + "/webhook-subscriptions/" + c.id
	return c
}

func (c *customer) subscribe(t testing.TB, url string) (id, secret string) {
	t.Helper()
	var made struct {
		ID     string `json:"id"`
		Secret string `json:"signing_secret"`
	}
	c.must(t, c.API, "POST", "/v1/webhook-subscriptions", map[string]any{"name": "n", "url": url, "events": []string{"call.completed"}}, 201, &made)
	return made.ID, made.Secret
}

func (c *customer) must(t testing.TB, client *kit.Client, method, path string, body any, want int, into any) {
	t.Helper()
	if err := client.Into(context.WithoutCancel(t.Context()), method, path, body, want, into); err != nil {
		t.Fatal(err)
	}
}

func (c *customer) set(t testing.TB, status string) time.Time {
	t.Helper()
	c.must(t, c.API, "PATCH", c.own, map[string]any{"status": status}, 200, nil)
	return time.Now()
}

type subscription struct {
	ID                  string     `json:"id"`
	Status              string     `json:"status"`
	ConsecutiveFailures int        `json:"consecutive_failures"`
	LastSuccessAt       *time.Time `json:"last_success_at"`
	LastFailureAt       *time.Time `json:"last_failure_at"`
	WarnedAt            *time.Time `json:"warned_at"`
	LastError           *string    `json:"last_error"`
	Flag                *struct {
		FailedAt time.Time `json:"failed_at"`
		Reason   string    `json:"reason"`
	} `json:"flag"`
}

func (c *customer) shown(t testing.TB) subscription {
	t.Helper()
	var page kit.Page[subscription]
	c.must(t, c.Admin, "GET", strings.TrimSuffix(c.admin, "/"+c.id), nil, 200, &page)
	for _, s := range page.Data {
		if s.ID == c.id {
			return s
		}
	}
	t.Fatalf("the operator's list lacks subscription %s", c.id)
	return subscription{}
}

// Only the response for a single delivery contains History.
type delivery struct {
	ID        string  `json:"id"`
	EventID   string  `json:"event_id"`
	Status    string  `json:"status"`
	Attempts  int     `json:"attempts"`
	LastCode  *int    `json:"last_code"`
	LastError *string `json:"last_error"`
	History   []struct {
		Replay  int       `json:"replay"`
		Attempt int       `json:"attempt"`
		At      time.Time `json:"at"`
		Code    *int      `json:"code"`
		Error   *string   `json:"error"`
		Excerpt *string   `json:"excerpt"`
	} `json:"history"`
}

// An empty status selects all deliveries.
func (c *customer) deliveries(t testing.TB, status string) []delivery {
	t.Helper()
	query := map[string][]string{}
	if status != "" {
		query["status"] = []string{status}
	}
	all, err := kit.All(context.WithoutCancel(t.Context()), c.Admin, c.admin+"/deliveries", query, func(d delivery) string { return d.ID })
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (c *customer) delivery(t testing.TB, eventID string) (d delivery) {
	t.Helper()
	for _, one := range c.deliveries(t, "") {
		if one.EventID == eventID {
			c.must(t, c.Admin, "GET", c.admin+"/deliveries/"+one.ID, nil, 200, &d)
		}
	}
	return d
}

func (c *customer) awaitDelivery(t testing.TB, eventID, status string) (d delivery) {
	t.Helper()
	until(t, "the delivery of event "+eventID+" is "+status, func() bool {
		d = c.delivery(t, eventID)
		return d.Status == status || slices.Contains([]string{"delivered", "failed", "skipped"}, d.Status)
	})
	if d.Status != status {
		t.Fatalf("the delivery of event %s is %s after %d attempts, want %s", eventID, d.Status, d.Attempts, status)
	}
	return d
}

func (c *customer) replay(t testing.TB, status string, since time.Time) int {
	t.Helper()
	var answer struct {
		Replayed int `json:"replayed"`
	}
	c.must(t, c.Admin, "POST", c.admin+"/deliveries/replay", map[string]any{"status": status, "since": since.UTC().Format(time.RFC3339Nano)}, 202, &answer)
	return answer.Replayed
}

// countQueued counts the rows of the subscription's queue.
func (c *customer) countQueued(t testing.TB, where string) (n int) {
	t.Helper()
	query := "SELECT count(*) FROM webhook_dispatcher.delivery_queue WHERE subscription_id = $1 AND " + where
	if err := c.w.db.QueryRow(context.WithoutCancel(t.Context()), query, c.id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (c *customer) history(t testing.TB) (n int) {
	t.Helper()
	const query = "SELECT count(*) FROM webhook_dispatcher.deliveries WHERE subscription_id = $1"
	if err := c.w.db.QueryRow(context.WithoutCancel(t.Context()), query, c.id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// metric returns the sum of a metric over its labels for one replica of webhook-dispatcher. The
// first replica has the number 1.
func (w *testStack) metric(ctx context.Context, replica int, name string) (sum float64, err error) {
	address := fmt.Sprintf("http://127.0.0.1:%d/metrics", w.ports[fmt.Sprintf("webhook-dispatcher private %d", replica)])
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	found := false
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum, found = sum+number, true
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return 0, err
	}
	if !found {
		return 0, fmt.Errorf("replica %d has no metric %s", replica, name)
	}
	return sum, lines.Err()
}

func (w *testStack) metrics(t testing.TB, name string) (sum float64) {
	t.Helper()
	for replica := 1; replica <= replicas; replica++ {
		one, err := w.metric(t.Context(), replica, name)
		if err != nil {
			t.Fatal(err)
		}
		sum += one
	}
	return sum
}

func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if err := kit.Until(context.WithoutCancel(t.Context()), kit.HangTimeout, what, func() (bool, error) {
		return cond(), nil
	}); err != nil {
		t.Fatal(err)
	}
}
