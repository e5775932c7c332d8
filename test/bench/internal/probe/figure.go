// Package figure says how a measured number is printed, and whether it meets its goal. A goal that is missed is printed, never an error.

package probe

import (
	"fmt"
	"slices"
	"time"
)

// Spread is the p50 and p99 of some durations.
func Spread(took []time.Duration) string {
	if len(took) == 0 {
		return "no samples"
	}
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", MS(Quantile(took, 0.5)), MS(Quantile(took, 0.99)))
}

// Quantile sorts took, which holds one at least; q is between 0 and 1.
func Quantile(took []time.Duration, q float64) time.Duration {
	slices.Sort(took)
	return took[int(q*float64(len(took)-1))]
}

// MS is a duration in milliseconds, exact to a microsecond.
func MS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// AtLeast judges a figure that should not be smaller than its goal.
func AtLeast(value, goal float64, unit string) string {
	return verdict(value >= goal, "≥", goal, unit)
}

// AtMost judges a figure that should not be greater than its goal.
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
