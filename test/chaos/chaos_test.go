package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// With -large the test takes five minutes, otherwise 15 seconds.
func TestChaos_ViolatesNoGuarantee(t *testing.T) {
	set := settings{
		bin: sharedstack.Binaries(t), seed: number("RINGFENCE_SEED", uint64(time.Now().UnixNano())), rate: 10,
		replicas: 1, scale: 0.2, settleTimeout: 3 * time.Minute,
		length: 15 * time.Second, field: fullField(1),
	}
	set.field.Gap, set.field.Blackouts = time.Second, 0
	if sharedstack.Large() {
		set.length, set.replicas, set.scale, set.field = 5*time.Minute, 2, 1, fullField(2)
	}
	t.Logf("RINGFENCE_SEED=%d", set.seed)
	report, err := run(t.Context(), set, func(line string) { fmt.Fprintln(t.Output(), line) })
	if err != nil {
		t.Fatal(err)
	}
	publish(t, report)
	if !report.Holds() {
		t.Errorf("guarantees were broken:\n%s", report)
	}
	if report.Dials == 0 {
		t.Error("report.Dials = 0, want more")
	} else if report.Accepted == 0 {
		t.Error("report.Accepted = 0, want more")
	}
}

// TestChaos_ViolatesNoGuaranteeOverSIP injects the same faults with SIP trunks to sipp. The test
// takes two minutes.
func TestChaos_ViolatesNoGuaranteeOverSIP(t *testing.T) {
	if _, err := exec.LookPath(kit.Program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("sipp is missing: install Debian's sip-tester")
		}
		t.Skip("sipp is missing: install Debian's sip-tester to run this")
	}
	set := settings{bin: sharedstack.Binaries(t), seed: number("RINGFENCE_SEED", uint64(time.Now().UnixNano())),
		rate: 10, scale: 1, settleTimeout: 3 * time.Minute, field: fullField(1)}
	if set.length = 2 * time.Minute; !sharedstack.Large() {
		t.Skip("needs -large, as in make test-nightly")
	}
	set.overSIP()
	t.Logf("RINGFENCE_SEED=%d", set.seed)
	report, err := run(t.Context(), set, func(line string) { fmt.Fprintln(t.Output(), line) })
	if err != nil {
		t.Fatal(err)
	}
	publish(t, report)
	sharedstack.Equal(t, "every guarantee holds", report.Holds(), true)
	if report.Dials == 0 {
		t.Errorf("report.Dials = %v, want another value", report.Dials)
	}
	if report.Accepted == 0 {
		t.Errorf("report.Accepted = %v, want another value", report.Accepted)
	}
}

func publish(t *testing.T, report *Report) {
	t.Helper()
	t.Logf("%d requests, %d dials, %d faults, broker %s", sum(report.Requests), report.Dials, report.Planned, report.Broker)
	t.Logf("%s", report)
}

// TestChaos_ReportsASecondDial sends one of the dialer's requests to the carrier again. The carrier
// then places a second call. The checks at the end of the run must report this call.
func TestChaos_ReportsASecondDial(t *testing.T) {
	var dialed kit.LogLine
	set := settings{
		bin: sharedstack.Binaries(t), seed: number("RINGFENCE_SEED", 1), rate: 10, replicas: 1, scale: 0.1,
		settleTimeout: time.Minute,
		length:        3 * time.Second, expendable: true,
		field: Field{Processes: []string{"dialer"}, Kinds: []Kind{Kill}, Gap: time.Second, AtOnce: 1},
		afterFaults: func(ctx context.Context, w *testStack) (err error) {
			dialed, err = dialAgain(ctx, w)
			return err
		},
	}
	report, err := run(t.Context(), set, func(line string) { fmt.Fprintln(t.Output(), line) })
	if err != nil {
		t.Fatal(err)
	}
	sharedstack.Contains(t, "breaches", strings.Join(report.Breaches[atMostOnceDialing], "\n"), dialed.CallID)
	sharedstack.Equal(t, "every guarantee holds", report.Holds(), false)
}

func dialAgain(ctx context.Context, w *testStack) (kit.LogLine, error) {
	log, err := w.stack.CarrierLog(ctx)
	if err != nil {
		return kit.LogLine{}, err
	}
	i := slices.IndexFunc(log, func(l kit.LogLine) bool { return l.Kind == "originate" })
	if i < 0 {
		return kit.LogLine{}, errors.New("the dialer placed no call")
	}
	body := map[string]any{"call_id": log[i].CallID, "from": log[i].From, "to": log[i].To, "dialed_at": log[i].At}
	return log[i], kit.NewClient(w.stack.Demo.SimURL, "").Into(ctx, http.MethodPost, "/originate", body,
		http.StatusAccepted, nil)
}

func TestPlan_SameSeedGivesSamePlan(t *testing.T) {
	t.Parallel()
	field := fullField(2)
	if a, b := Plan(7, 5*time.Minute, field), Plan(7, 5*time.Minute, field); !slices.Equal(a, b) {
		t.Errorf("the same seed gave two plans: a = %v, want %v", a, b)
	} else if fingerprint(a) != fingerprint(b) {
		t.Errorf("the same seed gave two plans: fingerprint(a) = %v, want %v", fingerprint(a), fingerprint(b))
	}
	if fingerprint(Plan(7, 5*time.Minute, field)) == fingerprint(Plan(8, 5*time.Minute, field)) {
		t.Error("two seeds gave the same plan")
	}
}

func TestPlan_CoversEveryTargetWithoutOverlap(t *testing.T) {
	t.Parallel()
	const length = 5 * time.Minute
	for seed := range uint64(50) {
		plan := Plan(seed, length, fullField(2))
		hurt, last, blackouts := map[string]bool{}, time.Duration(0), 0
		for i, f := range plan {
			if f.At < last {
				t.Fatalf("seed %d: f.At = %v, want at least %v", seed, f.At, last)
			}
			if f.At+f.For > length {
				t.Fatalf("seed %d: f.At+f.For = %v, want at most %v", seed, f.At+f.For, length)
			}
			if (f.Kind == Pause || f.Kind == Choke) && f.For < 2*time.Second {
				t.Errorf("seed %d: %s is shorter than a gate's answer is good for", seed, f)
			}
			for _, g := range plan[:i] {
				shared := slices.Contains([]string{f.Target, everything}, g.Target) || f.Target == everything
				if g.nextFaultTime() > f.At && shared {
					t.Errorf("seed %d: %s at %s while %s since %s", seed, f, f.At, g, g.At)
				}
			}
			if f.Kind == Blackout {
				blackouts++
			}
			hurt[f.Target], last = true, f.At
		}
		for _, target := range append(killable(), links()...) {
			if !hurt[target] {
				t.Errorf("seed %d: nothing happens to %s", seed, target)
			}
		}
		if blackouts < 2 {
			t.Errorf("seed %d: blackouts = %v, want at least 2", seed, blackouts)
		} else if len(plan) < 60 {
			t.Errorf("seed %d: length of plan = %d, want at least 60", seed, len(plan))
		}
	}
}

func TestReport_ListsViolations(t *testing.T) {
	t.Parallel()
	r := newReport()
	r.Seed = 42
	text := r.String()
	sharedstack.Contains(t, "text", text, "Every guarantee held")
	sharedstack.Contains(t, "text", text, "0 doubles")
	sharedstack.Contains(t, "text", text, "0 difference")
	r.broken(atMostOnceDialing, "+14155550100 rang again for call c1")
	r.addMoneyFault(-5, "call c1 is completed and costs 0, not 0.000005")
	text = r.String()
	for _, want := range []string{"1 doubles", "0.000005 difference", "rang again for call c1", "RINGFENCE_SEED=42"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if r.Holds() {
		t.Error("the guarantees hold, want a violation")
	}
}
