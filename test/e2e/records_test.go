package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const unreadable = 5

// TestRecords_RepeatedAndInvalidRecordsChangeNothing publishes every record of every topic again,
// in random order, and invalid records. Nothing that a customer can read may change. The stack has
// its own broker, because the test counts the records in the broker.
func TestRecords_RepeatedAndInvalidRecordsChangeNothing(t *testing.T) {
	rng, hooks, bus := sharedstack.Seeded(t, 1), receiver(t), kafkatest.New(t)
	s := start(t, binaries(t), "KAFKA_BROKERS="+strings.Join(bus.Brokers, ","), "SSL_CERT_FILE="+hooks.CAFile)
	w := tenant(t, s, hooks, "1000")
	accepted := map[string]string{}
	for n := range 100 {
		req, err := w.Place(t.Context(), map[string]any{"to": number(3_000_000 + n)})
		if err != nil {
			t.Fatal(err)
		}
		accepted[req.ID] = req.To
	}
	optIn := causeOptInEvents(t, w, hooks, accepted)
	judge(t, s, w, hooks, accepted)
	before, delivered := snapshot(t, s, w), len(hooks.Deliveries(w.ID))

	client, err := kgo.NewClient(kgo.SeedBrokers(bus.Brokers...), kgo.ConsumeTopics(topicNames()...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	records := everything(t, client)
	for _, name := range topicNames() {
		for n := range unreadable {
			records = append(records, &kgo.Record{Topic: name, Key: fmt.Appendf(nil, "garbage-%d", n), Value: []byte{0xff, 0xff, 0xff}})
		}
	}
	rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
	for i, r := range records {
		records[i] = &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("produce %d records: %v", len(records), err)
	}
	awaitNoLag(t, kadm.NewClient(client))
	judge(t, s, w, hooks, accepted)
	if got := len(hooks.Deliveries(w.ID)); got != delivered {
		t.Errorf("%d webhooks after the repeats, want the %d from before", got, delivered)
	}
	if got, want := len(hooks.Deliveries(optIn.path)), len(optIn.want); got != want {
		t.Errorf("%d webhooks of opt-in events after the repeats, want the %d from before", got, want)
	}
	if after := snapshot(t, s, w); !bytes.Equal(before, after) {
		t.Errorf("the state changed:\n before %s\n after  %s", before, after)
	}
	for reader, count := range countDeadLetters(t, kadm.NewClient(client)) {
		if count != unreadable {
			t.Errorf("%s holds %d records, want the %d unreadable ones", reader, count, unreadable)
		}
	}
	req, err := w.Place(t.Context(), map[string]any{"to": number(3_900_000)})
	if err != nil {
		t.Fatalf("a call after the garbage: %v", err)
	}
	accepted[req.ID] = req.To
	judge(t, s, w, hooks, accepted)
}

// causeOptInEvents causes opt-in events and waits until they have arrived. It adds their requests
// to accepted.
func causeOptInEvents(
	t *testing.T, w *kit.Workspace, hooks *kit.Receiver, accepted map[string]string,
) *optInTrial {
	t.Helper()
	p := &optInTrial{T: t, Workspace: w, hooks: hooks}
	p.subscribe()
	canceled := place(t, w, number(3_100_000), time.Now().Add(time.Hour), false)
	blocked := place(t, w, number(3_100_001), time.Now().Add(10*time.Second), false)
	p.repeat(w.API, "POST", "/v1/opt-outs", map[string]any{"phone_e164": blocked.To})
	p.repeat(w.API, "POST", "/v1/call-requests/"+canceled.ID+"/cancel", nil)
	p.repeat(w.Admin, "PATCH", "/admin/v1/workspaces/"+w.ID+"/wallet", map[string]any{"low_balance_threshold": "2000"})
	accepted[canceled.ID], accepted[blocked.ID] = canceled.To, blocked.To
	p.want = []string{
		"call_request.canceled " + canceled.ID, "call_request.blocked " + blocked.ID, "wallet.low_balance 1",
	}
	p.awaitEvents()
	return p
}

func judge(t *testing.T, s *kit.Stack, w *kit.Workspace, r *kit.Receiver, accepted map[string]string) {
	t.Helper()
	v, err := s.Judge(t.Context(), w, r, accepted, 1000, kit.HangTimeout)
	if err != nil {
		t.Fatalf("Judge: %v", err)
	}
	if v.Err() != nil {
		t.Fatalf("v.Err() = %v, want nil", v.Err())
	}
	t.Log(v)
}

func topicNames() (names []string) {
	for _, topic := range kafka.Catalogue() {
		names = append(names, topic.Name)
	}
	return names
}

func everything(t *testing.T, client *kgo.Client) (records []*kgo.Record) {
	t.Helper()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topicNames()...)
	if err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	ends.Each(func(o kadm.ListedOffset) { want += o.Offset })
	until(t, fmt.Sprintf("all %d records are read", want), func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		records = append(records, client.PollFetches(ctx).Records()...)
		return int64(len(records)) >= want
	})
	return records
}

func awaitNoLag(t *testing.T, admin *kadm.Client) {
	t.Helper()
	until(t, "every consumer has read everything", func() bool {
		lags, err := admin.Lag(t.Context(), "calls", "dialer", "billing-wallet", "webhook-dispatcher")
		if err != nil {
			return false
		}
		total := int64(0)
		for _, group := range lags {
			total += group.Lag.Total()
		}
		return total == 0
	})
}

func snapshot(t *testing.T, s *kit.Stack, w *kit.Workspace) []byte {
	t.Helper()
	var all []any
	for _, path := range []string{"/v1/calls?limit=100", "/v1/call-requests?limit=100", "/v1/contacts?limit=100", "/v1/wallet"} {
		var answer any
		if err := w.API.Into(t.Context(), "GET", path, nil, 200, &answer); err != nil {
			t.Fatal(err)
		}
		all = append(all, answer)
	}
	log, err := s.CarrierLog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(append(all, len(log)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// countDeadLetters counts the records in every dead-letter topic.
func countDeadLetters(t *testing.T, admin *kadm.Client) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for _, topic := range kafka.Catalogue() {
		for _, reader := range kafka.Readers(topic.Name) {
			name := kafka.DLQ(topic, reader).Name
			counts[name] = 0
			until(t, name+" is filled", func() bool {
				ends, err := admin.ListEndOffsets(t.Context(), name)
				counts[name] = 0
				ends.Each(func(o kadm.ListedOffset) { counts[name] += o.Offset })
				return err == nil && counts[name] >= unreadable
			})
		}
	}
	return counts
}
