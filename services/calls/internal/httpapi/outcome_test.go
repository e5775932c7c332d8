package httpapi_test

import (
	"slices"
	"testing"

	"ringfence.dev/proto/eventv1"
)

// The summary is late or never arrives. In this case, call.completed must contain the outcome of
// the dialer's event `ended`.
func TestCompletedEvent_WithoutASummaryHasTheOutcomeOfTheEndedEvent(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		ended string
		want  any
	}{
		{name: "outcome set during the conversation", ended: "opted_out", want: "opted_out"},
		{name: "no outcome before the summary", ended: "", want: nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.account(r.place())
			a.publish(a.dialing(), a.answered())
			end := a.ended("completed", "normal_clearing")
			end.Event = &eventv1.DialEvent_Ended{Ended: &eventv1.Ended{Outcome: test.ended}}
			a.publish(end, a.captured(5000))
			r.complete()
			if got, want := r.types(), []string{"call.answered"}; !slices.Equal(got, want) {
				t.Fatalf("events before the analysis is due = %v, want %v", got, want)
			}
			r.exec(`UPDATE calls SET end_learned_at = end_learned_at - interval '11 seconds',
				completes_at = completes_at - interval '11 seconds'`)
			r.complete()
			if got, want := r.types(), []string{"call.answered", "call.completed"}; !slices.Equal(got, want) {
				t.Fatalf("events = %v, want %v", got, want)
			}
			data, _ := r.events()[1]["data"].(map[string]any)
			if data["outcome"] != test.want {
				t.Errorf("outcome of call.completed = %v, want %v", data["outcome"], test.want)
			}
			if data["summary"] != nil {
				t.Errorf("summary of call.completed = %v, want null", data["summary"])
			}
			a.publish(a.analysed())
			if got := a.read()["outcome"]; got != "interested" {
				t.Errorf("outcome after the analysis = %v, want interested", got)
			}
		})
	}
}
