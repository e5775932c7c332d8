package httpapi_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
)

// scheduled_for is a whole second. An encoder that omits trailing zeros would write it without
// decimals.
func TestTimestamps_HaveThreeDecimals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at := time.Now().UTC().Truncate(time.Hour).Add(24 * time.Hour)
	placed := r.want(http.StatusAccepted, "POST", "/v1/calls", r.order("scheduled_for", at.Format(time.RFC3339)))
	if got, want := placed["scheduled_for"], at.Format("2006-01-02T15:04:05.000Z"); got != want {
		t.Errorf("scheduled_for = %v, want %v", got, want)
	}
	call := r.account(r.place())
	call.publish(call.fenced(), call.dialing(), call.answered(), call.ended("completed", "normal_clearing"))
	for path, want := range map[string]int{
		"/v1/call-requests":                    8,
		"/v1/calls":                            1,
		"/v1/calls/" + call.id():               4,
		r.admin("/calls/" + call.id()):         4,
		r.admin("/agents/" + r.agent.String()): 2,
	} {
		document, err := json.Marshal(r.want(http.StatusOK, "GET", path, nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := testkit.CheckTimestamps(t, document); got != want {
			t.Errorf("GET %s: %d timestamps in %s, want %d", path, got, document, want)
		}
	}
}
