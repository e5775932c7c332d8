package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ringfence.dev/proto/eventv1"
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

// Several clients change the same version of a workspace. Only the first change succeeds.
func TestChangeWorkspace_OnlyOneOfManyChangesOfAVersionSucceeds(t *testing.T) {
	t.Parallel()
	const changes = 10
	r := newRig(t)
	path := "/admin/v1/workspaces/" + r.workspace("")
	read := r.operator("GET", path, "")
	tag := read.header.Get("ETag")
	if tag == "" {
		t.Fatal("GET has no ETag")
	}
	var changed, refused atomic.Int64
	var all sync.WaitGroup
	for i := range changes {
		all.Go(func() {
			body := fmt.Sprintf(`{"max_live_calls":%d}`, i+1)
			got := send(t, "PATCH", r.admin.URL+path, operatorToken, body, http.Header{"If-Match": {tag}})
			switch {
			case got.status == http.StatusOK:
				changed.Add(1)
				if next := got.header.Get("ETag"); next == tag || next == "" {
					t.Errorf("ETag of the change = %s, want another one than %s", next, tag)
				}
			case got.status == http.StatusPreconditionFailed && got.code() == "precondition_failed":
				refused.Add(1)
			default:
				t.Errorf("PATCH = %d %s, want 200 or 412", got.status, got.body)
			}
		})
	}
	all.Wait()
	if got := changed.Load(); got != 1 {
		t.Errorf("accepted changes = %d, want 1", got)
	}
	if got := refused.Load(); got != changes-1 {
		t.Errorf("refused changes = %d, want %d", got, changes-1)
	}
	if got := len(r.events()); got != 2 {
		t.Errorf("events = %d, want 2: the creation and one change", got)
	}
}

// The body is invalid and the version is old. The client receives the error about the version.
func TestChangeWorkspace_ChecksTheVersionBeforeTheBody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/admin/v1/workspaces/" + r.workspace("")
	old := http.Header{"If-Match": {r.operator("GET", path, "").header.Get("ETag")}}
	if got := r.operator("PATCH", path, `{"max_live_calls":7}`); got.status != http.StatusOK {
		t.Fatalf("PATCH = %d %s, want 200", got.status, got.body)
	}
	got := send(t, "PATCH", r.admin.URL+path, operatorToken, `{"max_live_calls":"many"}`, old)
	wantAnswer(t, "an old version", got, http.StatusPreconditionFailed, "precondition_failed")
}

// The change is stored, but a service does not respond. The client repeats it with the ETag of the
// 503.
func TestChangeWorkspace_ChangeCanBeRepeatedAfterA503(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/admin/v1/workspaces/" + r.workspace("")
	header := http.Header{"If-Match": {r.operator("GET", path, "").header.Get("ETag")}}
	r.settings[proxy.Dialer].onApply(func(context.Context, *eventv1.WorkspaceEvent) error {
		return connect.NewError(connect.CodeUnavailable, nil)
	})
	const change = `{"max_live_calls":7}`
	refused := send(t, "PATCH", r.admin.URL+path, operatorToken, change, header)
	wantAnswer(t, "while the dialer does not respond", refused, http.StatusServiceUnavailable, "unavailable")
	r.settings[proxy.Dialer].onApply(nil)
	got := send(t, "PATCH", r.admin.URL+path, operatorToken, change, http.Header{"If-Match": {refused.header.Get("ETag")}})
	if got.status != http.StatusOK {
		t.Errorf("PATCH with the ETag of the 503 = %d %s, want 200", got.status, got.body)
	}
}
