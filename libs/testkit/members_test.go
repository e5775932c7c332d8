package testkit

import (
	"fmt"
	"strings"
	"testing"
)

type failingObjects struct {
	testing.TB
	message string
}

func (f *failingObjects) Helper() {}

func (f *failingObjects) Errorf(format string, args ...any) { f.message = fmt.Sprintf(format, args...) }

func TestMembers_ComparesOnlyTheNamedJSONFields(t *testing.T) {
	got := map[string]any{"id": "a", "status": "queued"}
	f := &failingObjects{TB: t}
	Members(f, "call", got, map[string]any{"status": "queued", "ended_at": nil})
	if f.message != "" {
		t.Errorf("equal members: message = %q, want it empty", f.message)
	}
	Members(f, "call", got, map[string]any{"status": "ended"})
	if !strings.HasPrefix(f.message, "call (-want +got):\n") {
		t.Errorf(`another status: message = %q, want it to begin with "call (-want +got):"`, f.message)
	}
}
