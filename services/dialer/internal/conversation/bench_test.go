package conversation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/realtime"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/conversation"
	"ringfence.dev/services/dialer/internal/media"
	"ringfence.dev/services/dialer/internal/sdp"
	"ringfence.dev/services/dialer/internal/sipcarrier"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

// BenchmarkConversations runs one conversation for each phone in RINGFENCE_CONVERSATION_PHONES,
// with the model at RINGFENCE_CONVERSATION_MODEL (ws://…). After all calls have started, it waits
// for RINGFENCE_CONVERSATION_SETTLING, and then measures the CPU time of this process for
// RINGFENCE_CONVERSATION_FOR. It writes the time of each answer, in ns since 1970, to the file
// RINGFENCE_CONVERSATION_ANSWERS. `make bench ARGS='-only bridge'` runs it with -test.benchtime=1x.
func BenchmarkConversations(b *testing.B) {
	phones := strings.FieldsFunc(os.Getenv("RINGFENCE_CONVERSATION_PHONES"), func(r rune) bool { return r == ',' })
	window, err := time.ParseDuration(os.Getenv("RINGFENCE_CONVERSATION_FOR"))
	if len(phones) == 0 || err != nil {
		b.Skip("no phones to talk to: `make bench ARGS='-only bridge'` starts some")
	}
	settling, err := time.ParseDuration(os.Getenv("RINGFENCE_CONVERSATION_SETTLING"))
	if err != nil {
		b.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	streams, err := media.New(media.Settings{Bind: loopback}, metrics)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- streams.Run(ctx) }()
	model := realtime.New(
		realtime.Config{URL: os.Getenv("RINGFENCE_CONVERSATION_MODEL"), Key: "bench", Model: "echo"},
		ssrf.New(nil),
		nil,
	)
	calls := conversation.NewSIPCalls(
		hourStore(`{"kind":"openai_realtime","greeting":"Hello.","disclosure":{"off_reason":"a bench"}}`),
		noKeys{},
		streams,
		loopback,
		map[string]agent.Opener{agent.Realtime: model},
		nil,
	)
	all, answers := make([]sipcarrier.Conversation, len(phones)), make([]int64, len(phones))
	for i, phone := range phones {
		all[i] = startCall(b, calls)
		answers[i] = time.Now().UnixNano()
		pickUp(b, all[i], phone)
		time.Sleep(10 * time.Millisecond) // start a hundred calls per second
	}
	time.Sleep(settling)
	before := sentPackets(b, metrics)
	begun, spent := time.Now(), cpuTime(b)
	for b.Loop() {
		time.Sleep(window)
	}
	spent, took := cpuTime(b)-spent, time.Since(begun)
	after := sentPackets(b, metrics)
	goroutines := runtime.NumGoroutine()
	lost := counted(b, metrics, "ringfence_dialer_rtp_lost_packets_total")
	unsent := counted(
		b,
		metrics,
		"ringfence_dialer_rtp_send_errors_total",
	) + counted(
		b,
		metrics,
		"ringfence_dialer_rtp_skipped_frames_total",
	)
	var ending sync.WaitGroup
	for _, one := range all {
		ending.Go(func() { one.End() })
	}
	ending.Wait()
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	text, err := json.Marshal(answers)
	if err == nil {
		err = os.WriteFile(os.Getenv("RINGFENCE_CONVERSATION_ANSWERS"), text, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
	for bound, n := range before {
		after[bound] -= n
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*spent.Seconds()/took.Seconds(), "cpu-%")
	b.ReportMetric(100*spent.Seconds()/took.Seconds()*100/float64(len(all)), "cpu-%-per-100")
	b.ReportMetric(quantile(after, 0.5), "late-p50-ms")
	b.ReportMetric(quantile(after, 0.99), "late-p99-ms")
	b.ReportMetric(lost, "lost")
	b.ReportMetric(unsent, "unsent")
	b.ReportMetric(float64(goroutines), "goroutines")
}

// hourStore implements Store. Its value is the JSON of the agent's settings. The maximum duration
// of a call is one hour.
type hourStore string

func (o hourStore) ConversationInputs(context.Context, uuid.UUID) (store.ConversationInputs, error) {
	return store.ConversationInputs{Settings: []byte(o), Person: "+14155550101", MaxCallSeconds: 3600}, nil
}

func startCall(b *testing.B, calls *conversation.SIPCalls) sipcarrier.Conversation {
	b.Helper()
	call, err := calls.Begin(b.Context(), uuid.New(), trunks.New(uuid.Nil))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), endTimeout)
	defer cancel()
	if err := call.Ready(ctx); err != nil {
		b.Fatal(err)
	}
	return call
}

func pickUp(b *testing.B, call sipcarrier.Conversation, phone string) {
	b.Helper()
	address := netip.MustParseAddrPort(phone)
	answer, _, err := sdp.NewSession(
		7,
		sdp.Local{Address: address.Addr(), Port: address.Port()},
	).Answer(
		call.Offer(),
		sdp.Both,
	)
	if err == nil {
		err = call.Answer(
			answer,
			sipcarrier.ConversationCallbacks{
				HangUp: func(cause callstate.Cause) { panic(fmt.Sprintf("a call ended: %s", cause)) },
			},
		)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func counted(b *testing.B, metrics prometheus.Gatherer, name string) (sum float64) {
	b.Helper()
	families, err := metrics.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, family := range families {
		for _, one := range family.GetMetric() {
			if family.GetName() == name {
				sum += one.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// sentPackets returns the cumulative histogram of the delays of sent packets. A key is a delay in
// seconds. Its value is the number of packets with at most this delay.
func sentPackets(b *testing.B, metrics prometheus.Gatherer) map[float64]float64 {
	b.Helper()
	families, err := metrics.Gather()
	if err != nil {
		b.Fatal(err)
	}
	counts := map[float64]float64{}
	for _, family := range families {
		for _, one := range family.GetMetric() {
			for _, bucket := range one.GetHistogram().GetBucket() {
				counts[bucket.GetUpperBound()] += float64(bucket.GetCumulativeCount())
			}
		}
	}
	return counts
}

// quantile returns the quantile q of a cumulative histogram, in ms. The keys of counts are in
// seconds.
func quantile(counts map[float64]float64, q float64) float64 {
	bounds := slices.Sorted(maps.Keys(counts))
	if len(bounds) == 0 {
		return 0
	}
	rank, low, below := q*counts[bounds[len(bounds)-1]], 0.0, 0.0
	for _, bound := range bounds {
		if n := counts[bound]; n >= rank && n > below {
			return 1000 * (low + (bound-low)*(rank-below)/(n-below))
		}
		low, below = bound, counts[bound]
	}
	return 1000 * low
}
