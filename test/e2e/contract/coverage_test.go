package contract

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// faults are what was wrong outside of any test's own requests.
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

// cannotBeProvoked are the documented answers that a healthy stack does not give: our own faults, peers that are away (proven in
// the services' tests and in outage_test.go) and a body that takes longer than a test may (libs/httpserver).
func cannotBeProvoked(what string) bool {
	for _, ending := range []string{" 500 internal_error", " 503 unavailable", " 408 request_timeout"} {
		if strings.HasSuffix(what, ending) {
			return true
		}
	}
	return false
}

// judge says what the tests as a whole have shown: every delivery was as documented and, when all of them ran, everything documented was
// seen: each operation with each status and error code, each webhook.
func (w *world) judge(all bool) (code int) {
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
