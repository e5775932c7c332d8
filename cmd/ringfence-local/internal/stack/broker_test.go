package stack

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/testkit"
)

func start(t *testing.T, cfg Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	var stopped bool
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("broker ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func client(t *testing.T, cfg Config, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	// If the broker has stopped, Close of a client without DisableClientMetrics waits for one
	// second.
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr(cfg)), kgo.DisableClientMetrics())...)
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func addr(cfg Config) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(cfg.Port)) }

func config(t *testing.T) Config {
	t.Helper()
	free, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	return Config{Dir: t.TempDir(), Port: free}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
	t.Cleanup(cancel)
	return ctx
}

func makeTopic(t *testing.T, cfg Config, name string, settings map[string]*string) {
	t.Helper()
	admin := kadm.NewClient(client(t, cfg))
	ctx := within(t)
	for {
		answer, err := admin.CreateTopic(ctx, 1, 1, settings, name)
		if err == nil && answer.Err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("create topic %s: %v %v", name, err, answer.Err)
		}
	}
}

func produce(t *testing.T, cfg Config, topic, key, value string) {
	t.Helper()
	record := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}
	if err := client(t, cfg).ProduceSync(within(t), record).FirstErr(); err != nil {
		t.Fatalf("produce: %v", err)
	}
}

func TestRun_RestartKeepsRecordsAndTopics(t *testing.T) {
	cfg := config(t)
	stop := start(t, cfg)
	makeTopic(t, cfg, "facts", nil)
	produce(t, cfg, "facts", "k", "kept")
	stop()

	start(t, cfg)
	reader := client(t, cfg, kgo.ConsumeTopics("facts"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetches := reader.PollFetches(within(t))
	if err := fetches.Err(); err != nil {
		t.Fatalf("consume after restart: %v", err)
	}
	if got := string(fetches.Records()[0].Value); got != "kept" {
		t.Errorf("value after restart = %q, want kept", got)
	}
}

func TestRun_SecondBrokerOnTheSameDirectoryIsRefused(t *testing.T) {
	cfg := config(t)
	start(t, cfg)
	// When this topic exists, the first broker has locked the directory.
	makeTopic(t, cfg, "up", nil)
	other := cfg
	other.Port, _ = Free(cfg.Port)
	err := Run(within(t), other)
	if err == nil {
		t.Fatal("second Run succeeded, want a refusal")
	}
	if want := "another broker"; !strings.Contains(err.Error(), want) {
		t.Errorf("second Run = %v, want it to contain %q", err, want)
	}
}

func TestRun_BrokerCreatesNoTopicByItself(t *testing.T) {
	cfg := config(t)
	start(t, cfg)
	makeTopic(t, cfg, "up", nil)
	cl := client(t, cfg, kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	if err := cl.ProduceSync(within(t), &kgo.Record{Topic: "typo", Value: []byte("x")}).FirstErr(); err == nil {
		t.Error("a topic that does not exist accepted a record")
	}
}

func TestMaintainLogs_CompactsTopicsAfterARestart(t *testing.T) {
	cfg := config(t)
	compacted, small := "compact", "1024"
	stop := start(t, cfg)
	makeTopic(t, cfg, "states", map[string]*string{"cleanup.policy": &compacted, "segment.bytes": &small})
	value := strings.Repeat("x", 600)
	for range 8 {
		produce(t, cfg, "states", "same key", value)
	}
	stop()

	cfg.CompactEvery = 20 * time.Millisecond
	start(t, cfg)
	ctx := within(t)
	for {
		reader := client(t, cfg, kgo.ConsumeTopics("states"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		fetches := reader.PollFetches(ctx)
		reader.Close()
		if first := fetches.Records(); len(first) > 0 && first[0].Offset > 0 {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("nothing was compacted: the ticker is not armed after a restart")
		}
	}
}

func TestGuard_ClosesConnectionsThatDoNotSendKafkaRequests(t *testing.T) {
	cfg := config(t)
	start(t, cfg)
	makeTopic(t, cfg, "up", nil)
	frame := func(size uint32, key uint16) []byte {
		b := binary.BigEndian.AppendUint32(nil, size)
		b = binary.BigEndian.AppendUint16(b, key)
		return append(b, make([]byte, 32)...)
	}
	for name, packet := range map[string][]byte{
		"an HTTP GET":            []byte("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"an unknown request key": frame(36, 999),
		"a negative size":        frame(0xffffffff, 3),
		"a size below any frame": frame(2, 3),
		"a size above any frame": frame(200<<20, 3),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", addr(cfg))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(testkit.Timeout)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(packet); err != nil {
				t.Fatal(err)
			}
			// The end of the stream or a reset means that the guard closed the connection. A
			// timeout means that the connection is still open.
			var timeout net.Error
			if _, err := io.ReadAll(conn); errors.As(err, &timeout) && timeout.Timeout() {
				t.Error("the connection was kept")
			}
			produce(t, cfg, "up", "k", "still serving")
		})
	}
}
