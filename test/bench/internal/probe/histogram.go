package probe

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Histogram is a Prometheus histogram: the number of values at or below each bound.
type Histogram struct {
	buckets map[float64]float64
	sum     float64
	// Count is the number of values.
	Count float64
}

// Parse reads one histogram without labels from the text format of Prometheus.
func Parse(text io.Reader, name string) (Histogram, error) {
	found := Histogram{buckets: map[float64]float64{}}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, ours := strings.CutPrefix(lines.Text(), name+"_")
		at := strings.LastIndexByte(rest, ' ')
		if !ours || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(rest[at+1:], 64)
		if err != nil {
			return found, fmt.Errorf("read %s: %w", name, err)
		}
		switch {
		case strings.HasPrefix(rest, "sum"):
			found.sum += value
		case strings.HasPrefix(rest, "count"):
			found.Count += value
		case strings.HasPrefix(rest, "bucket"):
			_, bound, _ := strings.Cut(rest, `le="`)
			bound, _, _ = strings.Cut(bound, `"`)
			le, err := strconv.ParseFloat(bound, 64)
			if err != nil {
				return found, fmt.Errorf("read a bound of %s: %w", name, err)
			}
			found.buckets[le] += value
		}
	}
	return found, lines.Err()
}

// Less subtracts an earlier reading, so the result contains only the values that were added since
// then.
func (g Histogram) Less(earlier Histogram) Histogram {
	since := Histogram{buckets: map[float64]float64{}, sum: g.sum - earlier.sum, Count: g.Count - earlier.Count}
	for bound, n := range g.buckets {
		since.buckets[bound] = n - earlier.buckets[bound]
	}
	return since
}

// bucketOf returns the bucket that contains the quantile q. position is the quantile's position
// among the values of that bucket, from 0 to 1.
func (g Histogram) bucketOf(q float64) (low, high, position float64) {
	below := 0.0
	for _, bound := range slices.Sorted(maps.Keys(g.buckets)) {
		if n := g.buckets[bound]; n >= q*g.Count && n > below {
			return low, bound, (q*g.Count - below) / (n - below)
		}
		low, below = bound, g.buckets[bound]
	}
	return low, low, 0
}

// Quantile returns a quantile in seconds. It interpolates linearly inside a bucket. A value above
// the last bound counts as that bound.
func (g Histogram) Quantile(q float64) float64 {
	low, high, position := g.bucketOf(q)
	if math.IsInf(high, 1) {
		return low
	}
	return low + position*(high-low)
}

// Mean returns the mean in seconds.
func (g Histogram) Mean() float64 { return g.sum / max(g.Count, 1) }

func (g Histogram) String() string {
	low, high, _ := g.bucketOf(0.99)
	return fmt.Sprintf("%7.0f, those that found nothing too; p99 %.2f ms (between the bounds %g and %g ms), mean %.2f ms",
		g.Count, 1000*g.Quantile(0.99), 1000*low, 1000*high, 1000*g.Mean())
}
