package httpapi_test

import (
	"net/http"
	"testing"
)

func TestCall_FailureDuringTheConversationKeepsOutcomeAndTranscript(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.setFeatures(1, true, false)
	a := r.account(r.place())
	a.publish(a.fenced(), a.dialing(), a.answered())
	ended := a.ended("failed", "media_timeout")
	ended.GetEnded().Outcome = "opted_out"
	a.publish(ended)
	analysed := a.transcribed()
	analysed.GetAnalysed().Outcome = "opted_out"
	a.publish(analysed)
	if got := a.read()["outcome"]; got != "opted_out" {
		t.Errorf("outcome = %v, want opted_out", got)
	}
	r.want(http.StatusOK, "GET", "/v1/calls/"+a.id()+"/transcript", nil)
	events := r.events()
	last := events[len(events)-1]
	if last["type"] != "call.failed" {
		t.Errorf("last event = %v, want call.failed", last["type"])
	}
	if got := last["data"].(map[string]any)["outcome"]; got != "opted_out" {
		t.Errorf("outcome in call.failed = %v, want opted_out", got)
	}
}
