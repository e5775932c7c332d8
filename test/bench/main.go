// Command bench measures Ringfence on this machine. It prints each figure together with a limit
// that the bench measured in the same run, because a figure without a limit means nothing. A missed
// goal is not an error. README.md describes the figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

type settings struct {
	bin      string
	postgres string
	only     string
	clients  string
	each     time.Duration
	records  int
	soak     time.Duration
	profiles string
	held     int
	contacts int
	broker   string
}

// bench is the state that a measurement uses: one stack, which is idle when the measurement begins.
type bench struct {
	settings
	on   string
	home string
	// db is the superuser's URL of the stack's database.
	db      string
	stack   *kit.Stack
	hooks   *kit.Receiver
	landing *Landing
	// webhookStack is the shared state of the measurements of deliveries. It is nil before the first
	// such measurement.
	webhookStack *WebhookStack
	// callStack is the shared state of the measurements of calls. It is nil before the first such
	// measurement.
	callStack *CallStack
	meter     *probe.Meter
	// The first measurement that reads the histories creates them.
	largeHistory, smallHistory *history
}

// measurement is one measurement of the bench. The measurements run in the order of the list. The
// flag -only selects measurements by name. An error ends the bench.
type measurement struct {
	name, says string
	run        func(context.Context, *bench) error
	// onlyIfNamed is true if the measurement runs only when -only names it.
	onlyIfNamed bool
	// usesKafka is true if the measurement uses Kafka. Such a measurement runs on each broker.
	usesKafka bool
}

func measurements() []measurement {
	return []measurement{
		{name: "commits", says: "transactions of one POST; fails if a POST makes more durable commits than expected",
			run: measureCommits},
		{name: "posts", says: "POST /v1/calls for the next day, as a share of the baseline loop that makes only its " +
			"durable commits", run: measurePosts},
		{name: "gateway", says: "time that the rate-limit check and the gateway add to a request", run: measureGateway},
		{name: "flood", says: "GET with a valid key during a flood of invalid keys, compared to a flood of GET /readyz",
			run: measureFlood},
		{name: "claims", says: "cost of a claim with a million scheduled call requests, compared to a thousand",
			run: runClaimBench},
		{name: "dials",
			says: "time from due to the dial in the carrier's log at 10, 100 and 500 calls a second, compared to the " +
				"baseline loop", run: withCallStack(Dials)},
		{name: "pipeline", says: "simulated calls a second from POST to the terminal webhook, and their CPU time by program",
			run: withCallStack(Pipeline), usesKafka: true},
		{name: "stream", says: "CPU time that 50 event streams add to a call, and the time from the commit of an event to " +
			"the stream, compared to its webhook", run: withCallStack(EventStreams)},
		{name: "held", says: "ten thousand concurrent simulated calls for a minute, and their memory",
			run: withCallStack(Held)},
		{name: "media", says: "RTP and SRTP of 100, 300 and 500 calls in both directions: CPU time, delay of sent " +
			"packets, loss", run: media},
		{name: "bridge",
			says: "20, 100 and 200 calls with a model: CPU time, delay that the bridge adds to audio, time from the answer " +
				"to the agent's first sound", run: bridge},
		{name: "webhooks", says: "time from POST to the arrival of the webhook", run: measureWebhooks, usesKafka: true},
		{name: "deliveries", says: "deliveries of a backlog in call-events.v1, as a share of the baseline loop, which " +
			"sends to the same receiver", run: withWebhookStack(Deliveries), usesKafka: true},
		{name: "steady", says: "fifty deliveries a second: CPU time and latency of one, compared to a direct POST",
			run: withWebhookStack(Steady), usesKafka: true},
		{name: "neighbours", says: "a healthy endpoint alone, and beside endpoints that hang", run: withWebhookStack(Neighbours)},
		{name: "pauses", says: "the last delivery after a pause, the first after a resume", run: withWebhookStack(Pauses)},
		{name: "longqueue",
			says: "an endpoint beside a subscription with a million due deliveries that is paused and resumed",
			run:  withWebhookStack(LongQueue)},
		{name: "takeover", says: "duration of calls while a replica is killed or stopped", run: measureTakeover},
		{name: "idle", says: "statements of webhook-dispatcher at Postgres while no event arrives", run: idle},
		{name: "soak", says: "half of the backlog's rate for a long time, and the duration of claims at the end",
			run: withWebhookStack(Soak), onlyIfNamed: true},
		{name: "costs", says: "cost of a call by component: CPU time, Postgres and Kafka", run: costs},
		{name: "judging",
			says: "pre-check and dial-time check with five million contacts, as a share of POST, and the import of a list " +
				"compared to a plain COPY", run: complianceChecks},
		{name: "reads", says: "GET by id and every list with a million calls, compared to a thousand", run: measureReads},
		{name: "audit", says: "GET of a call with an audit entry, compared to a response of the same size without one",
			run: measureAuditedReads},
		{name: "console", says: "lists of the console with a million calls, compared to a thousand, their largest paint, " +
			"and the time from the commit of an event to the page, compared to a stream", run: measureConsole},
	}
}

func media(ctx context.Context, b *bench) error {
	return Streams(ctx, b.bin, b.each)
}

func bridge(ctx context.Context, b *bench) error {
	return Conversations(ctx, b.bin, b.each)
}

func complianceChecks(ctx context.Context, b *bench) error {
	return Measure(ctx, GateSetup{Stack: b.stack, Home: b.home, DB: b.db, Each: b.each, Contacts: b.contacts, Listed: b.contacts / 5})
}

func helperProcess() func([]string) error {
	if len(os.Args) < 2 {
		return nil
	}
	return map[string]func([]string) error{ReceiverCommand: Run, EchoCommand: Echo, PhonesCommand: Phones}[os.Args[1]]
}

func main() {
	if run := helperProcess(); run != nil {
		if err := run(os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", os.Args[1], err)
			os.Exit(1)
		}
		return
	}
	var names []string
	for _, m := range measurements() {
		names = append(names, m.name)
	}
	var set settings
	flag.StringVar(&set.bin, "bin", os.Getenv("RINGFENCE_BIN"), "folder of the built programs")
	flag.StringVar(
		&set.postgres,
		"postgres",
		"",
		"URL of a superuser of Postgres; if empty, the bench starts its own Postgres, with fsync",
	)
	flag.StringVar(&set.only, "only", "", "measurements to run, by name: "+strings.Join(names, ","))
	flag.StringVar(&set.clients, "clients", "1,8,32,128", "numbers of concurrent clients of posts")
	flag.DurationVar(&set.each, "each", 10*time.Second, "how long each measurement runs")
	flag.IntVar(&set.records, "records", 20_000, "records of the backlog of deliveries")
	flag.DurationVar(&set.soak, "soak", 10*time.Minute, "how long soak runs, which only -only starts")
	flag.IntVar(&set.held, "held", 10_000, "calls that held holds at once")
	flag.IntVar(&set.contacts, "contacts", 5_000_000, "contacts that judging judges beside; a fifth as many are imported")
	flag.StringVar(&set.broker, "broker", "both", "embedded, apache, or both: what Kafka matters to is measured on Apache Kafka as well (after make kafka-fetch)")
	flag.StringVar(&set.profiles, "profile", "",
		"folder for CPU profiles of every service during each measurement; empty: none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, set); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// selectMeasurements returns the measurements in the flag -only, or all default measurements if the
// flag is empty.
func selectMeasurements(only string) ([]measurement, error) {
	all := measurements()
	if only == "" {
		return slices.DeleteFunc(all, func(m measurement) bool { return m.onlyIfNamed }), nil
	}
	var picked []measurement
	for name := range strings.SplitSeq(only, ",") {
		at := slices.IndexFunc(all, func(m measurement) bool { return m.name == strings.TrimSpace(name) })
		if at < 0 {
			return nil, fmt.Errorf("there is no measurement %q", name)
		}
		picked = append(picked, all[at])
	}
	return picked, nil
}

const (
	embedded = "embedded"
	apache   = "apache"
)

// brokers returns the selected brokers that are installed.
func brokers(set settings) ([]string, error) {
	_, err := os.Stat(filepath.Join(set.bin, "apachekafka"))
	here := err == nil || os.Getenv("RINGFENCE_KAFKA_JARS") != ""
	switch set.broker {
	case embedded:
		return []string{embedded}, nil
	case apache:
		return []string{apache}, nil
	case "both":
		if !here {
			fmt.Println("SKIPPED: Apache Kafka is not installed: run make kafka-fetch (Java 17 or newer, Maven)")
			return []string{embedded}, nil
		}
		return []string{embedded, apache}, nil
	}
	return nil, fmt.Errorf("-broker is %q: set it to embedded, apache or both", set.broker)
}

func run(ctx context.Context, set settings) error {
	list, err := selectMeasurements(set.only)
	if err != nil {
		return err
	}
	on, err := brokers(set)
	if err != nil {
		return err
	}
	fmt.Printf("ringfence bench: %s a measurement, one machine for everything\n", set.each)
	for i, broker := range on {
		if i > 0 {
			list = slices.DeleteFunc(list, func(m measurement) bool { return !m.usesKafka })
		}
		if len(list) == 0 {
			continue
		}
		if err := measure(ctx, &bench{settings: set, on: broker}, list); err != nil {
			return err
		}
	}
	return nil
}

func measure(ctx context.Context, b *bench, list []measurement) (err error) {
	if b.home, err = os.MkdirTemp("", "ringfence-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.home)
	if err := os.Chmod(b.home, 0o755); err != nil { // an unprivileged Postgres must be able to read the folder
		return err
	}
	if b.db = b.postgres; b.db == "" {
		server, err := kit.StartPostgres(b.bin, "--durable")
		if err != nil {
			return err
		}
		defer func() { _ = server.Stop() }()
		b.db = server.URL
	}
	if b.hooks, err = kit.NewReceiver(b.home); err != nil {
		return err
	}
	defer b.hooks.Close()
	b.landing = NewLanding()
	b.hooks.OnDelivery = b.landing.Deliver
	if b.stack, err = b.start(ctx, b.home, b.db); err != nil {
		return err
	}
	defer b.stop()
	if b.meter, err = probe.NewCPU(ctx, b.stack, b.db); err != nil {
		return err
	}
	defer b.meter.Close()
	for _, m := range list {
		fmt.Printf("\n%s, %s broker: %s\n", m.name, b.on, m.says)
		stopProfiles := func() {}
		if b.profiles != "" {
			if stopProfiles, err = b.profile(ctx, m.name); err != nil {
				return err
			}
		}
		err := m.run(ctx, b)
		stopProfiles()
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

func (b *bench) stop() {
	if b.webhookStack != nil {
		b.webhookStack.Close()
	}
	if b.callStack != nil {
		b.callStack.Close()
	}
	_ = b.stack.Stop()
}

// start starts a stack with its own folder and database. Variables in env replace the default
// variables of the bench.
func (b *bench) start(ctx context.Context, home, db string, env ...string) (*kit.Stack, error) {
	port, err := testkit.Port()
	if err != nil {
		return nil, err
	}
	admin, err := testkit.Port()
	if err != nil {
		return nil, err
	}
	if port == admin {
		return nil, errors.New("the two ports that were found are equal: try again")
	}
	settings := []string{
		fmt.Sprintf("RINGFENCE_PORT=%d", port), fmt.Sprintf("RINGFENCE_ADMIN_PORT=%d", admin),
		"RINGFENCE_BROKER=" + b.on, "RINGFENCE_KAFKA_JVM=-Xms512m -Xmx512m -XX:+UseG1GC",
		"POSTGRES_URL=" + db, "SSL_CERT_FILE=" + b.hooks.CAFile, "SIMULATOR_TIME_SCALE=0", "LOG_LEVEL=warn",
		// These limits apply to all workspaces together. They are so high that no measurement
		// reaches them. One workspace can use nine tenths of each limit.
		"TRUNK_CHANNELS=20000", "MAX_LIVE_CALLS=20000", "TRUNK_CALLS_PER_SECOND=2000", "CALLS_PER_SECOND=2000",
	}
	return kit.Start(ctx, kit.Options{Bin: b.bin, Home: home, Env: append(settings, env...)})
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
