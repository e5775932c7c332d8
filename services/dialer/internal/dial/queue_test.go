package dial

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/dialqueue"
)

func TestUnusedTokens_EachTokenIsReturnedOnce(t *testing.T) {
	t.Parallel()
	a, b := uuid.New(), uuid.New()
	var u unusedTokens
	u.add(dialqueue.Request{WorkspaceID: a, TookToken: true})
	u.add(dialqueue.Request{WorkspaceID: a, TookToken: true})
	u.add(dialqueue.Request{WorkspaceID: a}) // the claim took no token for this request
	u.add(dialqueue.Request{WorkspaceID: b, TookToken: true})
	for i, want := range []map[uuid.UUID]int{{a: 2}, {}} {
		if diff := cmp.Diff(want, u.take([]uuid.UUID{a})); diff != "" {
			t.Errorf("tokens of the first workspace, time %d (-want +got):\n%s", i+1, diff)
		}
	}
	for i := range 2 {
		both := u.take([]uuid.UUID{a, b})
		if diff := cmp.Diff(map[uuid.UUID]int{b: 1}, both); diff != "" {
			t.Errorf("tokens of both workspaces, time %d (-want +got):\n%s", i+1, diff)
		}
		u.restore(both) // the claim failed
	}
}
