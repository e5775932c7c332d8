package probe

import (
	"fmt"
	"strconv"
	"strings"
)

// Reported returns the figures in the output of one Go benchmark, by unit.
func Reported(out string) (map[string]float64, error) {
	values := map[string]float64{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("read %q: %w", line, err)
			}
			values[fields[i+1]] = value
		}
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("the benchmark reported nothing but:\n%s", out)
	}
	return values, nil
}
