package httpapi_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ringfence.dev/services/gateway/internal/proxy"
)

func TestChangeWorkspace_ManyConcurrentChangesAreAllStored(t *testing.T) {
	t.Parallel()
	const changes = 30
	r := newRig(t)
	id := r.workspace("")
	var all sync.WaitGroup
	for i := range changes {
		all.Go(func() {
			body := fmt.Sprintf(`{"max_live_calls":%d}`, i+1)
			if got := r.operator("PATCH", "/admin/v1/workspaces/"+id, body); got.status != http.StatusOK {
				t.Errorf("PATCH %s = %d %s, want 200", body, got.status, got.body)
			}
		})
	}
	all.Wait()
	want := make([]int64, 1+changes)
	for i := range want {
		want[i] = int64(i + 1)
	}
	ascending := cmpopts.SortSlices(func(a, b int64) bool { return a < b })
	if diff := cmp.Diff(want, r.settings[proxy.Dialer].versions(), ascending); diff != "" {
		t.Errorf("versions that dialer receivedRequest (-want +got):\n%s", diff)
	}
	var events []int64
	for _, event := range r.events() {
		events = append(events, event.GetVersion())
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("versions of the events, in order (-want +got):\n%s", diff)
	}
	if got := len(r.audit(id)); got != 1+changes {
		t.Errorf("audit rows = %d, want %d", got, 1+changes)
	}
}
