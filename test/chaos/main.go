// Command chaos sends mixed traffic to a local stack. Meanwhile it kills, stops and disconnects the
// stack's processes, Postgres, the broker and their connections at random. Then it waits until no
// work is in progress, checks every guarantee of docs/architecture.md from outside, and prints a
// report. The faults and their times depend only on the seed. Ctrl-C ends the faults early, and the
// checks follow.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"ringfence.dev/test/kit"
)

type settings struct {
	bin      string
	seed     uint64
	length   time.Duration
	rate     int
	replicas int
	scale    float64
	field    Field
	broker   string
	// settleTimeout limits the wait until no work is in progress.
	settleTimeout time.Duration
	env           []string
	// sip is true if calls use SIP trunks to sipp. Otherwise they use the simulated carrier.
	sip bool
	// If expendable is true, the run deletes the stack's folder even after a failure. If keep is
	// true, the run retains the folder even after a success.
	expendable, keep bool
	// afterFaults is called after the last fault, while work is still in progress.
	afterFaults func(context.Context, *testStack) error
}

// fullField returns the Field of a full run: every kind of fault can affect every target.
func fullField(replicas int) Field {
	return Field{
		Processes: killable(), Replicated: services(), Replicas: replicas, Links: links(),
		Gap: 1600 * time.Millisecond, AtOnce: 3, Blackouts: 2 * time.Minute,
	}
}

// overSIP changes the settings so that calls use SIP trunks. Each service has only one replica,
// because only one process can open the SIP port.
func (set *settings) overSIP() {
	simulated := func(name string) bool { return strings.HasSuffix(name, carrier) }
	set.sip, set.replicas, set.field.Replicas = true, 1, 1
	set.field.Processes, set.field.Links = slices.DeleteFunc(set.field.Processes, simulated), slices.DeleteFunc(set.field.Links, simulated)
}

func killable() []string { return append(services(), carrier, broker, postgres) }

func main() {
	set := settings{scale: 1, settleTimeout: 3 * time.Minute, seed: number("RINGFENCE_SEED", rand.Uint64N(1_000_000_000))}
	flag.StringVar(&set.bin, "bin", os.Getenv("RINGFENCE_BIN"), "folder of the built programs (RINGFENCE_BIN)")
	flag.IntVar(&set.rate, "rate", 10, "operations of the clients per second")
	minutes := flag.Float64("minutes", fraction("CHAOS_MINUTES", 5), "how long there are faults (CHAOS_MINUTES)")
	flag.IntVar(&set.replicas, "replicas", int(number("RINGFENCE_REPLICAS", 2)), "of each service (RINGFENCE_REPLICAS)")
	flag.BoolVar(
		&set.keep,
		"keep",
		false,
		"keep the stack's folder, with the log of every process, also after a successful run",
	)
	flag.StringVar(
		&set.broker,
		"broker",
		kit.Broker(),
		"embedded, or apache: Apache Kafka (RINGFENCE_BROKER; after make kafka-fetch). "+
			"With KAFKA_BROKERS set, apache starts its own broker and kills it",
	)
	over := flag.String(
		"carrier",
		"sim",
		"carrier of the calls: sim (simulated carrier), or sip (SIP trunks to sipp, one replica of each service)",
	)
	only := flag.Bool("plan", false, "print the faults of the seed (RINGFENCE_SEED) and inject none")
	flag.Parse()
	set.length, set.field = time.Duration(*minutes*float64(time.Minute)), fullField(set.replicas)
	if *over == "sip" {
		set.overSIP()
	}
	if *only {
		for _, f := range Plan(set.seed, set.length, set.field) {
			fmt.Printf("%s  %s\n", clock(f.At), f)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := run(ctx, set, func(line string) { fmt.Println(line) })
	if report != nil {
		fmt.Printf("\n%s", report)
	}
	if err == nil && !report.Holds() {
		err = errors.New("guarantees were broken")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func number(variable string, unset uint64) uint64 {
	if given, err := strconv.ParseUint(os.Getenv(variable), 10, 64); err == nil {
		return given
	}
	return unset
}

func fraction(variable string, unset float64) float64 {
	if given, err := strconv.ParseFloat(os.Getenv(variable), 64); err == nil && given > 0 {
		return given
	}
	return unset
}

func clock(at time.Duration) string {
	return fmt.Sprintf("%02d:%04.1f", int(at.Minutes()), (at % time.Minute).Seconds())
}

func commit(ctx context.Context) string {
	id, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changes, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output()
	if err != nil || len(changes) > 0 {
		return strings.TrimSpace(string(id)) + " with changes"
	}
	return strings.TrimSpace(string(id))
}

// calmPeriod is the duration of the traffic without faults at the beginning and at the end of a
// run.
const calmPeriod = 2 * time.Second

// run returns an error if the guarantees could not be checked. The report contains the broken
// guarantees. If ctx ends, only the faults end early.
func run(ctx context.Context, set settings, say func(string)) (report *Report, err error) {
	plan := Plan(set.seed, set.length, set.field)
	whole := context.WithoutCancel(ctx)
	r := newReport()
	r.SIP, r.Seed, r.Commit, r.Fingerprint, r.Planned, r.Replicas, r.Length = set.sip, set.seed, commit(whole), fingerprint(plan), len(plan), set.replicas, set.length
	set.broker = cmp.Or(set.broker, kit.Broker())
	r.Broker = set.broker
	say(
		fmt.Sprintf(
			"chaos: seed %d, plan %s: %d faults in %s; %d of each service, %d operations a second",
			set.seed,
			r.Fingerprint,
			len(plan),
			set.length,
			set.replicas,
			set.rate,
		),
	)
	w, err := startTestStack(ctx, set)
	keep := true
	defer func() {
		if keep {
			say("chaos: kept " + w.home + ", see stack.log there")
		}
		err = errors.Join(err, w.shutDown(keep))
	}()
	if err != nil {
		return nil, err
	}
	l := newLoad(w)
	began := time.Now()
	if r.Faults, err = w.runFaults(ctx, plan, l, say); err != nil {
		return nil, err
	}
	r.Storm = time.Since(began)
	if set.afterFaults != nil {
		if err := set.afterFaults(whole, w); err != nil {
			return nil, err
		}
	}
	say("chaos: the faults are over; waiting until everything has settled")
	settling := time.Now()
	j := &checker{w: w, l: l, r: r}
	j.awaitSettled(whole, set.settleTimeout)
	r.Settled, r.Answers, r.Missed = time.Since(settling), l.answers, l.missed
	if err := j.check(whole); err != nil {
		return nil, err
	}
	keep = set.keep || !r.Holds() && !set.expendable
	return r, nil
}

// When runFaults returns, all faults are repaired and all requests have a response.
func (w *testStack) runFaults(
	ctx context.Context,
	plan []Fault,
	l *load,
	say func(string),
) (done faultCounts, err error) {
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() { l.run(working) })
	began := time.Now()
	sleep(ctx, calmPeriod)
	done, err = w.injectPlan(ctx, plan, func(f Fault) {
		asked, accepted := l.countResponses()
		say(fmt.Sprintf("%s  %-60s asked %5d  accepted %5d", clock(time.Since(began)), f, asked, accepted))
	})
	err = errors.Join(err, w.heal(context.WithoutCancel(ctx)))
	sleep(ctx, calmPeriod)
	end()
	all.Wait()
	return done, err
}

// countResponses returns the number of responses so far, and the number of accepted orders.
func (l *load) countResponses() (asked, accepted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.answers {
		for _, n := range of {
			asked += n
		}
	}
	for _, o := range l.orders {
		if o.accepted() != "" {
			accepted++
		}
	}
	return asked, accepted
}
