package sharedstack

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
)

// Shared is a stack that several tests use. The first of these tests starts the stack.
type Shared[W interface {
	comparable
	End(well bool) error
}] struct {
	// Begin starts the stack. If Begin fails, it returns the parts that it has started, and Main
	// stops these parts.
	Begin func() (W, error)
	// Judge is called after the last test if all tests passed. Its result is the exit code. whole
	// is true if no test was skipped by a flag. Judge can be nil.
	Judge func(w W, whole bool) (code int)

	once    sync.Once
	current W
	err     error
}

// Get returns the shared stack. The first call starts it.
func (s *Shared[W]) Get(t testing.TB) W {
	t.Helper()
	s.once.Do(func() { s.current, s.err = s.Begin() })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.current
}

// Main runs the tests of a package, stops the stack and returns the exit code. At most `parallel`
// tests run at the same time. Use 1 unless the tests wait most of the time.
func (s *Shared[W]) Main(m *testing.M, parallel int) (code int) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	var none W
	if s.current == none {
		return code
	}
	if code == 0 && s.Judge != nil {
		code = s.Judge(
			s.current,
			flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "",
		)
	}
	if err := s.current.End(code == 0); err != nil {
		fmt.Fprintln(os.Stderr, "end the stack:", err)
		code = 1
	}
	return code
}
