package alerts

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/test/kit"
)

func (w *testStack) publish(t *testing.T, topic, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", ports(t, w.home)["kafka"])))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(value), Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// commitOffsetAhead commits an offset beyond the end of a topic for a stopped service. The
// service's database then seems to be older than the consumer group's offset, as after a restore of
// a backup.
func (w *testStack) commitOffsetAhead(t *testing.T, service, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", ports(t, w.home)["kafka"])))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	offsets, admin := kadm.Offsets{}, kadm.NewClient(client)
	for partition := range int32(12) {
		offsets.AddOffset(topic, partition, 1_000_000, -1)
	}
	await(t, "the broker has removed the consumer group "+service, func() bool {
		return admin.CommitAllOffsets(t.Context(), service, offsets) == nil
	})
}

// metricValue returns the value of a service's metric, or 0 if the service does not export it.
// selector is the metric's name with its labels, which must be sorted.
func (w *testStack) metricValue(t *testing.T, service, selector string) (value float64) {
	t.Helper()
	addresses, err := w.PrivateAddresses(service)
	if err != nil {
		t.Fatalf("%s has no private port: Privates: %v", service, err)
	}
	if len(addresses) == 0 {
		t.Fatalf("%s has no private port: length of addresses = 0, want more", service)
	}
	_, text, err := kit.NewClient("http://"+addresses[0], "").Do(t.Context(), http.MethodGet, "/metrics", nil)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if number, ok := strings.CutPrefix(line, selector+" "); ok {
			value, _ = strconv.ParseFloat(strings.TrimSpace(number), 64)
		}
	}
	return value
}

// connectSuperuser connects to Postgres as superuser, not through the proxy.
func (w *testStack) connectSuperuser(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (w *testStack) exec(t *testing.T, statement string, args ...any) int64 {
	t.Helper()
	conn := w.connectSuperuser(t)
	defer func() { _ = conn.Close(t.Context()) }()
	done, err := conn.Exec(t.Context(), statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	return done.RowsAffected()
}

func (w *testStack) locked(t *testing.T, table string, during time.Duration) {
	t.Helper()
	conn := w.connectSuperuser(t)
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `BEGIN; LOCK TABLE `+table+` IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	await(t, table+" was locked", func() bool { return time.Since(began) > during })
}

// limitOpenFiles lowers a process's limit of open files to the number of files that it has open
// now. It calls action and then restores the limit.
func (w *testStack) limitOpenFiles(t *testing.T, name string, action func()) {
	t.Helper()
	pids := w.Processes()[name]
	if len(pids) == 0 {
		t.Fatalf("there is no process %s", name)
	}
	pid := strconv.Itoa(pids[0])
	limit := func(flag string) string {
		out, err := exec.CommandContext(t.Context(), "prlimit", "--pid", pid, "--nofile"+flag, "--raw", "--noheadings", "--output=SOFT").Output()
		if err != nil {
			t.Fatalf("prlimit --nofile%s: %v", flag, err)
		}
		return string(out)
	}
	was, err := strconv.Atoi(strings.TrimSpace(limit("")))
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/" + pid + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	_ = limit(fmt.Sprintf("=%d:", len(open)+2))
	defer func() { _ = limit(fmt.Sprintf("=%d:", was)) }()
	action()
}
