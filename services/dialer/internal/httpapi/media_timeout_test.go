package httpapi_test

import (
	"net/http"
	"testing"
)

func TestTrunks_RefusesMediaTimeoutsOutOfRange(t *testing.T) {
	t.Parallel()
	o := open(t)
	const created, refused = http.StatusCreated, http.StatusUnprocessableEntity
	tests := []struct {
		name, setting string
		status        int
		want          any
	}{
		{name: "default of 15 s", status: created, want: 15.0},
		{name: "set to 60 s", setting: `,"media_timeout_seconds":60`, status: created, want: 60.0},
		{name: "0 disables the timeout", setting: `,"media_timeout_seconds":0`, status: created, want: 0.0},
		{name: "below the minimum", setting: `,"media_timeout_seconds":4`, status: refused},
		{name: "above the maximum", setting: `,"media_timeout_seconds":3601`, status: refused},
	}
	for _, test := range tests {
		status, trunk, body := o.sendOperator(
			t,
			http.MethodPost,
			lines,
			`{"name":"`+test.name+`","host":"192.0.2.1"`+test.setting+`}`,
		)
		if status != test.status {
			t.Errorf("%s: status = %d, want %d: %s", test.name, status, test.status, body)
		}
		if got := trunk["media_timeout_seconds"]; got != test.want {
			t.Errorf("%s: media_timeout_seconds = %v, want %v", test.name, got, test.want)
		}
		if id, _ := trunk["id"].(string); id != "" {
			_, read, _ := o.sendOperator(t, http.MethodGet, lines+"/"+id, "")
			if got := read["media_timeout_seconds"]; got != test.want {
				t.Errorf("%s: media_timeout_seconds of the stored trunk = %v, want %v", test.name, got, test.want)
			}
		}
	}
}
