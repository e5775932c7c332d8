// Package probe provides the tools of the benchmarks: baseline loops (the same work without the
// product), CPU time, a counting proxy for Postgres, histograms, and the output of figures. A
// missed goal is printed and is not an error.
package probe

import (
	"fmt"
	"slices"
	"time"
)

// Spread formats the p50 and p99 of durations.
func Spread(took []time.Duration) string {
	if len(took) == 0 {
		return "no samples"
	}
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", MS(Quantile(took, 0.5)), MS(Quantile(took, 0.99)))
}

// Quantile sorts took and returns its quantile q, which is between 0 and 1. took must not be empty.
func Quantile(took []time.Duration, q float64) time.Duration {
	slices.Sort(took)
	return took[int(q*float64(len(took)-1))]
}

// MS returns a duration in milliseconds with three decimals.
func MS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// AtLeast formats a figure, and whether the figure is at least its goal.
func AtLeast(value, goal float64, unit string) string {
	return verdict(value >= goal, "≥", goal, unit)
}

// AtMost formats a figure, and whether the figure is at most its goal.
func AtMost(value, goal float64, unit string) string {
	return verdict(value <= goal, "≤", goal, unit)
}

func verdict(met bool, sign string, goal float64, unit string) string {
	word := "MISSED"
	if met {
		word = "met"
	}
	return fmt.Sprintf("%s %g%s: %s", sign, goal, unit, word)
}
