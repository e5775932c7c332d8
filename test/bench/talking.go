package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"ringfence.dev/test/bench/internal/probe"
)

const (
	// mediaBench is the dialer's benchmark of its RTP streams. `make bench` builds it as a program.
	mediaBench = "ringfence-media"
	// goalCPU limits the CPU time per 100 calls, in percent of a core. The goal applies to the
	// measurement with 500 calls without SRTP.
	goalCPU = 15
)

// Streams prints figures of the audio of 100, 300 and 500 calls in both directions, without and
// with SRTP: the CPU time, the delay of sent packets, and the number of lost packets.
func Streams(ctx context.Context, bin string, each time.Duration) error {
	program := filepath.Join(bin, mediaBench)
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%s is missing: `make bench` builds it (go test -c -o %s ./services/dialer/internal/media)", mediaBench, mediaBench)
	}
	fmt.Printf(
		"  G.711 at 20 ms in both directions; another process returns every packet; %% of one core, without that process\n",
	)
	for _, count := range []int{100, 300, 500} {
		for _, secure := range []bool{false, true} {
			if err := talk(ctx, program, count, secure, each); err != nil {
				return err
			}
		}
	}
	return nil
}

func talk(ctx context.Context, program string, count int, secure bool, each time.Duration) error {
	far, err := startPeers(EchoCommand, count)
	if err != nil {
		return err
	}
	defer far.stop()
	cmd := exec.CommandContext(ctx, program, "-test.run=^$", "-test.bench=^BenchmarkStreams$", "-test.benchtime=1x", "-test.timeout=15m")
	cmd.Env = append(os.Environ(), "RINGFENCE_MEDIA_PEERS="+far.addresses, "RINGFENCE_MEDIA_FOR="+each.String())
	name := "RTP "
	if secure {
		cmd.Env = append(cmd.Env, "RINGFENCE_MEDIA_SRTP=1")
		name = "SRTP"
	}
	before, begun := probe.Spent(far.pid), time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", mediaBench, err, out)
	}
	theirs := 100 * (probe.Spent(far.pid) - before).Seconds() / time.Since(begun).Seconds()
	cost, err := probe.Reported(string(out))
	if err != nil {
		return err
	}
	judged := ""
	if count == 500 && !secure {
		judged = " " + probe.AtMost(cost["cpu-%-per-100"], goalCPU, " %")
	}
	fmt.Printf("    %s %3d calls: CPU %5.1f %%, %4.1f %% per 100%s; far ends %.1f %%\n", name, count, cost["cpu-%"], cost["cpu-%-per-100"], judged, theirs)
	fmt.Printf("      sent late p50 %.2f ms, p99 %.2f ms; echo p50 %.2f ms, p99 %.2f ms; worst jitter %.2f ms; %.0f lost of %.0f, %.0f frames left out\n",
		cost["late-p50-ms"], cost["late-p99-ms"], cost["echo-p50-ms"], cost["echo-p99-ms"], cost["jitter-ms"], cost["lost"], cost["sent"], cost["skipped"])
	return nil
}
