package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const (
	firstShared = 8_000_000
	// fairShare is the minimum share of each replica in divided work. The share is not checked if
	// there were fewer than minOperations operations.
	fairShare, minOperations = 0.1, 60
	requested, read          = "ringfence_http_request_duration_seconds_count", "ringfence_inbox_records_total"
	// callsPerClient is the number of calls of each client. heldCalls is the number of calls that
	// are in progress at the kill of a replica.
	concurrentClients, callsPerClient, heldCalls = 16, 12, 24
)

func workMetrics() map[string][]string {
	return map[string][]string{
		"gateway": {requested}, "calls": {requested, read}, "contacts-compliance": {requested, read}, "billing-wallet": {requested, read},
		"dialer": {"ringfence_dialer_attempts_total", read}, "webhook-dispatcher": {"ringfence_webhooks_attempts_total", read},
	}
}

// TestReplicas_ShareWorkAndTakeOverFromAKilledReplica checks that two replicas of every service
// share the work. Then it kills one replica during calls. All calls must end. Without -large, the
// test kills only one dispatcher.
func TestReplicas_ShareWorkAndTakeOverFromAKilledReplica(t *testing.T) {
	system := stack(t)
	s, hooks, place := system.Stack, system.Hooks, system.Bin
	w := tenant(t, s, hooks, "1000")
	posting := &load{w: w, accepted: map[string]string{}, answers: map[int]int{}}
	next := firstShared
	burst := func(at, each int) (wait func()) {
		var all sync.WaitGroup
		for range at {
			first := next
			next += each
			all.Go(func() {
				for n := range each {
					posting.place(t.Context(), number(first+n))
				}
			})
		}
		return all.Wait
	}
	for name := range workMetrics() {
		until(t, "both replicas of "+name+" have partitions", func() bool { return hasPartitions(t, s, name) })
	}
	before := work(t, s)
	burst(concurrentClients, callsPerClient)()
	ends := func(what string) {
		t.Helper()
		until(t, what+": every terminal event has arrived",
			func() bool { return terminalEvents(hooks, w) == next-firstShared })
	}
	ends("two of everything")
	after := work(t, s)
	for name, metrics := range workMetrics() {
		for _, metric := range metrics {
			checkShares(t, name, metric, before[name+metric], after[name+metric])
		}
	}

	victims := servicesInOrder()
	killed := 2
	if !sharedstack.Large() {
		victims, killed = []string{"webhook-dispatcher"}, 1
	}
	for _, name := range victims {
		for _, pid := range s.Processes()[name][:killed] {
			wait := burst(heldCalls, 1)
			until(t, "some of the calls are under way",
				func() bool { return terminalEvents(hooks, w) > next-firstShared-heldCalls })
			// the link leads to no program, so the replica cannot start again
			put(t, place, filepath.Join(place, "nowhere"), name)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			wait()
			ends("one " + name)
			put(t, place, system.failpointBin, name)
			until(t, name+" is back", func() bool { return len(s.Processes()[name]) == 2 && ready(t, s, name) })
		}
	}
	posting.check(t)
	judge(t, s, w, hooks, posting.accepted)
}

func work(t *testing.T, s *kit.Stack) map[string][]float64 {
	t.Helper()
	all := map[string][]float64{}
	for name, metrics := range workMetrics() {
		addresses, err := s.PrivateAddresses(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, metric := range metrics {
			for _, address := range addresses {
				_, count, err := sumMetric(address, metric)
				if err != nil {
					t.Fatal(err)
				}
				all[name+metric] = append(all[name+metric], count)
			}
		}
	}
	return all
}

// checkShares checks that each replica did a part of the work between two readings of a counter.
func checkShares(t *testing.T, name, metric string, before, after []float64) {
	t.Helper()
	sum, did := 0.0, make([]float64, len(after))
	for i := range after {
		did[i] = after[i] - before[i]
		sum += did[i]
	}
	t.Logf("%s: %s %v", name, metric, did)
	if sum < minOperations {
		// contacts-compliance reads few records, so its share is not checked
		if name != "contacts-compliance" || metric != read {
			t.Errorf("%s: %s of both replicas = %v, want at least %d", name, metric, sum, minOperations)
		}
		return
	}
	least := fairShare * sum
	if metric == requested {
		least = 1 // HTTP requests are not divided equally
	}
	for i, count := range did {
		if count < least {
			t.Errorf("%s: %s of replica %d = %v, want at least %v of %v", name, metric, i+1, count, least, sum)
		}
	}
}

// hasPartitions reports whether each replica of a service has partitions. The result is true for a
// service that consumes no topics.
func hasPartitions(t *testing.T, s *kit.Stack, name string) bool {
	t.Helper()
	addresses, err := s.PrivateAddresses(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		has, _, err := sumMetric(address, "ringfence_kafka_consumer_oldest_record_seconds")
		if err != nil {
			t.Fatal(err)
		}
		if has == 0 && slices.Contains(workMetrics()[name], read) {
			return false
		}
	}
	return true
}

// sumMetric returns the number of series of a metric that a replica exports, and the sum of their
// values.
func sumMetric(address, metric string) (series int, sum float64, err error) {
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		rest, of := strings.CutPrefix(lines.Text(), metric)
		if !of || !strings.HasPrefix(rest, "{") && !strings.HasPrefix(rest, " ") {
			continue
		}
		fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
		if len(fields) == 0 {
			return 0, 0, fmt.Errorf("%s: %q has no value", address, lines.Text())
		}
		value, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %q: %w", address, lines.Text(), err)
		}
		series++
		sum += value
	}
	return series, sum, lines.Err()
}
