package contract

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// faults collects errors that do not belong to one test's request, such as an invalid webhook
// delivery.
type faults struct {
	mu  sync.Mutex
	all []error
}

func (f *faults) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, err)
}

// cannotBeProvoked is true for a response or webhook that a healthy stack with simulated calls
// never sends.
func cannotBeProvoked(what string) bool {
	for _, ending := range []string{" 500 internal_error", " 503 unavailable", " 408 request_timeout"} {
		if strings.HasSuffix(what, ending) {
			return true
		}
	}
	return what == "webhook call.recording_ready"
}

// checkCoverage requires that every delivery was valid. If all tests ran, every documented response
// and webhook must have occurred.
func (w *testStack) checkCoverage(all bool) (code int) {
	w.faults.mu.Lock()
	defer w.faults.mu.Unlock()
	for _, err := range w.faults.all {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		code = 1
	}
	if !all {
		return code
	}
	for _, what := range w.document.Unseen() {
		if !cannotBeProvoked(what) {
			fmt.Fprintln(os.Stderr, "FAIL: documented and never seen:", what)
			code = 1
		}
	}
	return code
}
