package kit

import (
	"strings"
	"testing"
)

func TestJudgeEvents_ReportsEachFault(t *testing.T) {
	t.Parallel()
	ended := []lightCall{{ID: "c1", Status: "completed"}}
	good := Delivery{CallID: "c1", Type: "call.completed", EventID: "e1", Signed: true}
	with := func(change func(*Delivery)) Delivery { d := good; change(&d); return d }
	tests := []struct {
		name string
		got  []Delivery
		want string // the expected fault; empty if no fault is expected
	}{
		{"one terminal event is correct", []Delivery{good}, ""},
		{"a repeated delivery of one event is correct", []Delivery{good, good}, ""},
		{"two terminal events of one call", []Delivery{good, with(func(d *Delivery) { d.EventID = "e2" })}, "2 terminal events"},
		{"two terminal events of different types",
			[]Delivery{good, with(func(d *Delivery) { d.EventID, d.Type = "e2", "call.failed" })}, "2 terminal events"},
		{"an unsigned delivery", []Delivery{with(func(d *Delivery) { d.Signed = false })}, "is not signed"},
		{"an event of an unknown call", []Delivery{with(func(d *Delivery) { d.CallID = "c9" })}, "does not know"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			v := &Verdict{}
			judgeEvents(v, ended, test.got)
			found := strings.Join(v.Faults, "\n")
			if (test.want == "") != (found == "") {
				t.Errorf(`test.want is "" = %v, want %v`, test.want == "", found == "")
			} else if !strings.Contains(found, test.want) {
				t.Errorf("found = %q, want it to contain %q", found, test.want)
			}
		})
	}
}

func TestMissingTerminals_ListsMissingTerminalEvents(t *testing.T) {
	t.Parallel()
	calls := []lightCall{{ID: "c1", Status: "busy"}, {ID: "c2", Status: "failed"}, {ID: "c3", Status: "ringing"}}
	got := []Delivery{{CallID: "c1", Type: "call.busy"}, {CallID: "c2", Type: "call.completed"}}
	missing := strings.Join(missingTerminals(calls, got), ", ")
	if want := "c2 call.failed, c3 is still ringing"; missing != want {
		t.Errorf("missing %q, want %q", missing, want)
	}
}
