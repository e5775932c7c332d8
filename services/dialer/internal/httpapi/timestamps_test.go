package httpapi_test

import (
	"net/http"
	"testing"

	"ringfence.dev/libs/testkit"
)

// The stored time has no fraction of a second. An encoder that omits trailing zeros would write it
// without decimals.
func TestTimestamps_HaveThreeDecimals(t *testing.T) {
	t.Parallel()
	o := open(t)
	o.sendOperator(t, http.MethodPost, lines, `{"name":"Main","host":"192.0.2.1"}`)
	o.sendOperator(t, http.MethodPost, o.numbersPath(), `{"phone_e164":"+14155550100","agent_id":"`+o.agent.String()+`"}`)
	o.sendOperator(t, http.MethodPut, o.keyOf(o.agent), `{"key":"s3cret-of-the-agent"}`)
	if _, err := o.pool.Exec(t.Context(), `UPDATE agent_keys SET updated_at = '2026-06-04 09:00:00+00'`); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{lines, o.numbersPath(), o.keyOf(o.agent)} {
		_, _, body := o.sendOperator(t, http.MethodGet, path, "")
		if got := testkit.CheckTimestamps(t, []byte(body)); got != 1 {
			t.Errorf("GET %s: %d timestamps in %s, want 1", path, got, body)
		}
	}
}
