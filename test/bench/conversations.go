package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"ringfence.dev/test/bench/internal/probe"
)

const (
	// conversationBench is the program that runs the dialer's conversations. model is the program that
	// fakes the Realtime API.
	conversationBench, model = "ringfence-conversations", "fake-speech-model"
	// goalDelay limits, in ms, the p50 of the delay that the dialer adds to the audio between a
	// person and the agent. The goal applies to the measurement with goalCalls calls.
	goalDelay, goalCalls = 12, 20
)

// Conversations prints the cost of 20, 100 and 200 calls with an agent. The phones, the dialer's
// conversations and the model are three processes. The model sends back the audio that it receives.
func Conversations(ctx context.Context, bin string, each time.Duration) error {
	for _, program := range []string{conversationBench, model} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			return fmt.Errorf("%s is missing: `make bench` builds it", program)
		}
	}
	fmt.Printf("  RTP and a WebSocket in the clear, a frame each 20 ms both ways on both; %% of one core, ours alone\n")
	for _, count := range []int{goalCalls, 100, 200} {
		if err := converse(ctx, bin, count, each); err != nil {
			return err
		}
	}
	return nil
}

func converse(ctx context.Context, bin string, count int, each time.Duration) error {
	url, end, err := answering(ctx, filepath.Join(bin, model))
	if err != nil {
		return err
	}
	defer end()
	phones, err := startPeers(PhonesCommand, count)
	if err != nil {
		return err
	}
	answers := filepath.Join(os.TempDir(), "ringfence-answers-"+phones.pid)
	defer os.Remove(answers)
	cmd := exec.CommandContext(
		ctx,
		filepath.Join(bin, conversationBench),
		"-test.run=^$",
		"-test.bench=^BenchmarkConversations$",
		"-test.benchtime=1x",
		"-test.timeout=15m",
	)
	cmd.Env = append(
		os.Environ(),
		"RINGFENCE_CONVERSATION_PHONES="+phones.addresses,
		"RINGFENCE_CONVERSATION_MODEL="+url,
		"RINGFENCE_CONVERSATION_FOR="+each.String(),
		"RINGFENCE_CONVERSATION_SETTLING="+settlingTime.String(),
		"RINGFENCE_CONVERSATION_ANSWERS="+answers,
	)
	before, begun := probe.Spent(phones.pid), time.Now()
	out, err := cmd.CombinedOutput()
	theirs := 100 * (probe.Spent(phones.pid) - before).Seconds() / time.Since(begun).Seconds()
	reports := phones.stop()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", conversationBench, err, out)
	}
	cost, err := probe.Reported(string(out))
	if err != nil {
		return err
	}
	heard, waits, err := readPhoneReports(reports, answers)
	if err != nil {
		return err
	}
	trips, judged := heard.trips(), ""
	if len(trips) == 0 || len(waits) == 0 {
		return fmt.Errorf("%d of %d marks came back, %d of %d agents were heard", len(trips), heard.Marks, len(waits), count)
	}
	if count == goalCalls {
		judged = "; p50 " + probe.AtMost(probe.MS(probe.Quantile(trips, 0.5)), goalDelay, " ms")
	}
	fmt.Printf("    %3d calls: CPU %5.1f %%, %4.1f %% per 100; phones %.1f %%\n", count, cost["cpu-%"], cost["cpu-%-per-100"], theirs)
	fmt.Printf("      mouth to ear %s, p95 %.2f ms%s\n", probe.Spread(trips), probe.MS(probe.Quantile(trips, 0.95)), judged)
	fmt.Printf("      answer to first sound %s; sent late p50 %.2f ms, p99 %.2f ms\n", probe.Spread(waits), cost["late-p50-ms"], cost["late-p99-ms"])
	fmt.Printf("      %d of %d marks came back; %d lost of %d to the phones, %.0f of theirs, %.0f left out\n",
		len(trips), heard.Marks, heard.Lost, heard.Heard, cost["lost"], cost["unsent"])
	return nil
}

func answering(ctx context.Context, program string) (url string, end func(), err error) {
	cmd := exec.CommandContext(ctx, program, "-echo")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start the model: %w", err)
	}
	end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return "", nil, fmt.Errorf("the model ended before it listened: %w", err)
	}
	return strings.TrimSpace(line), end, nil
}

func (t phoneReport) trips() []time.Duration {
	took := make([]time.Duration, len(t.Trips))
	for i, us := range t.Trips {
		took[i] = time.Duration(us) * time.Microsecond
	}
	return took
}

// readPhoneReports reads the reports of the phones. For each phone that received audio, waits
// contains the time from the phone's answer to the first audio of the agent.
func readPhoneReports(reports []byte, answers string) (heard phoneReport, waits []time.Duration, err error) {
	if err := json.Unmarshal(reports, &heard); err != nil {
		return heard, nil, fmt.Errorf("read what the phones said: %w", err)
	}
	text, err := os.ReadFile(answers)
	if err != nil {
		return heard, nil, err
	}
	var answered []int64
	if err := json.Unmarshal(text, &answered); err != nil || len(answered) != len(heard.First) {
		return heard, nil, fmt.Errorf("read when %d phones were answered: %d were; %w", len(heard.First), len(answered), err)
	}
	for i, at := range answered {
		if heard.First[i] > 0 {
			waits = append(waits, time.Duration(heard.First[i]-at))
		}
	}
	return heard, waits, nil
}
