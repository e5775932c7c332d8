package contract

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit/sharedstack"
)

func thisMonth() string { return time.Now().UTC().Format("2006-01") }

func TestUsage_HasTheTalkTimeAndTheChargeOfACall(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	placed := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id")
	ended := w.ended(t, placed)
	var call map[string]any
	until(t, "the call is charged", func() bool {
		call = w.read.want(t, 200, "GET", "/v1/calls/"+ended.text("call_id"), nil).members()
		return call["credits_charged"] != nil
	})
	timings, _ := call["timings"].(map[string]any)
	for name, file := range map[string]answer{
		"of the customer": w.read.want(t, 200, "GET", "/v1/usage?month="+thisMonth(), nil),
		"of the operator": w.operator.want(t, 200, "GET", w.admin+"/usage?month="+thisMonth(), nil),
	} {
		lines, err := csv.NewReader(strings.NewReader(file.body)).ReadAll()
		if err != nil {
			t.Fatalf("file %s: %v", name, err)
		}
		if len(lines) != 2 {
			t.Fatalf("lines of the file %s = %q, want 2", name, lines)
		}
		values := map[string]string{}
		for i, column := range lines[0] {
			values[column] = lines[1][i]
		}
		sharedstack.Equal(t, "agent_id", values["agent_id"], w.agent)
		sharedstack.Equal(t, "calling_code", values["calling_code"], "1")
		sharedstack.Equal(t, "calls", values["calls"], "1")
		sharedstack.Equal(t, "answered", values["answered"], "1")
		sharedstack.Equal(t, "talk_seconds", values["talk_seconds"], fmt.Sprint(timings["talk_seconds"]))
		sharedstack.Equal(t, "credits", values["credits"], fmt.Sprint(call["credits_charged"]))
	}
	for _, query := range []string{"", "?month=", "?month=2026-13", "?month=June"} {
		w.read.refused(t, 422, "validation_error", "GET", "/v1/usage"+query, nil)
	}
}
