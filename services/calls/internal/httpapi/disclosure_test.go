package httpapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/proto/eventv1"
)

func TestCall_ShowsThePlayedPartOfTheDisclosure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	a.publish(a.fenced(), a.dialing(), a.answered())
	if got, shown := a.read()["disclosure"]; shown {
		t.Errorf("disclosure of a live call = %v, want none", got)
	}
	ended := a.ended("completed", "normal_clearing")
	ended.GetCall().Disclosure = &eventv1.Disclosure{Text: "Hello, this is an AI.", StartedAt: a.at(20), CutAt: a.at(21)}
	analysed := a.transcribed()
	analysed.GetCall().Disclosure = ended.GetCall().GetDisclosure()
	a.publish(ended, analysed, a.captured(5))
	want := map[string]any{
		"text":        "Hello, this is an AI.",
		"started_at":  a.at(20).AsTime().Format("2006-01-02T15:04:05.000Z"),
		"finished_at": nil,
		"cut_at":      a.at(21).AsTime().Format("2006-01-02T15:04:05.000Z"),
	}
	if diff := cmp.Diff(any(want), a.read()["disclosure"]); diff != "" {
		t.Errorf("disclosure of the call (-want +got):\n%s", diff)
	}
	events := r.events()
	data, _ := events[len(events)-1]["data"].(map[string]any)
	if diff := cmp.Diff(any(want), data["disclosure"]); diff != "" {
		t.Errorf("disclosure in the last event (-want +got):\n%s", diff)
	}
}
