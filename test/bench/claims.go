package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"ringfence.dev/test/bench/internal/probe"
)

const (
	// claimBench is the program with the dialer's benchmark of the claim statement. `make bench`
	// builds this program.
	claimBench    = "ringfence-claims"
	claimRounds   = 1000
	goalDialClaim = 1.3
)

// Claims prints how expensive it is to claim a due call request while a million other requests are
// scheduled for later. The figure is a multiple of the cost with a thousand scheduled requests.
func Claims(ctx context.Context, bin, server string) error {
	program := filepath.Join(bin, claimBench)
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%s is missing: `make bench` builds it (go test -c -o %s ./services/dialer/internal/store)", claimBench, claimBench)
	}
	cmd := exec.CommandContext(ctx, program, "-test.run=^$", "-test.bench=^BenchmarkClaim$", fmt.Sprintf("-test.benchtime=%dx", claimRounds), "-test.timeout=15m")
	cmd.Env = append(os.Environ(), "RINGFENCE_TEST_POSTGRES="+server)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", claimBench, err, out)
	}
	cost, err := probe.Reported(string(out))
	if err != nil {
		return err
	}
	fmt.Printf("  %d claims of a single due request from each queue, in turn, commit included\n", claimRounds)
	fmt.Printf("    %-58s p50 %6.2f ms, p99 %6.2f ms, %4.0f pages\n", "beside 1 000 scheduled ahead", cost["few-p50-ms"], cost["few-p99-ms"], cost["few-pages"])
	for _, queue := range []struct{ name, says string }{
		{"spread", "beside 1 000 000 of a hundred workspaces"},
		{"other", "beside 1 000 000 of one workspace, another's"},
		{"own", "beside 1 000 000 of one workspace, its own"},
	} {
		of := func(figure string) float64 { return cost[queue.name+figure] / cost["few"+figure] }
		fmt.Printf("    %-58s p50 %6.2f ms, p99 %6.2f ms, %4.0f pages\n", queue.says, cost[queue.name+"-p50-ms"], cost[queue.name+"-p99-ms"], cost[queue.name+"-pages"])
		fmt.Printf("    %-58s p50 %s; p99 %.2f x; pages %s\n", "  of the first", ratio(of("-p50-ms")), of("-p99-ms"), ratio(of("-pages")))
	}
	return nil
}

func ratio(times float64) string {
	return fmt.Sprintf("%.2f x %s", times, probe.AtMost(times, goalDialClaim, "x"))
}
