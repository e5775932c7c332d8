package callstate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/libs/money"
)

func nextStatuses(from Status) []Status {
	ends := []Status{Completed, NoAnswer, Busy, Failed, Canceled}
	switch from {
	case "":
		return append([]Status{Initiated, Ringing, InProgress}, ends...)
	case Initiated:
		return append([]Status{Ringing, InProgress}, ends...)
	case Ringing:
		return append([]Status{InProgress}, ends...)
	case InProgress:
		return ends
	}
	return nil
}

// The test applies random events, including events that a dialer never sends.
func TestCall_EventsInAnyOrderKeepTheStateRules(t *testing.T) {
	t.Parallel()
	waits := Waits{Charge: 5 * time.Second, Analysis: 10 * time.Second}
	all := []Status{Initiated, Ringing, InProgress, Completed, NoAnswer, Busy, Failed, Canceled}
	rapid.Check(t, func(t *rapid.T) {
		now, c := start, &Call{ID: uuid.New()}
		if rapid.Bool().Draw(t, "outbound") {
			c.CallRequestID = ptr(uuid.New())
		}
		var events []string
		announce := func(before Status) {
			sequence := c.Sequence
			event := string(c.Announce(before, now, waits))
			if event == "" {
				if c.Sequence != sequence {
					t.Fatalf("sequence changed from %d to %d without an event", sequence, c.Sequence)
				}
				return
			}
			if events = append(events, event); c.Sequence != int32(len(events)) {
				t.Fatalf("event %d, %s, has sequence %d", len(events), event, c.Sequence)
			}
		}
		var optIn []string
		announceOptIn := func() {
			for event := c.NextOptIn(); event != ""; event = c.NextOptIn() {
				if !c.Closed {
					t.Fatalf("%s was sent before the terminal event", event)
				}
				optIn = append(optIn, string(event))
				if got, want := int(c.Sequence), len(events)+len(optIn); got != want {
					t.Fatalf("%s has sequence %d, want %d", event, got, want)
				}
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			before := c.Status
			switch rapid.SampledFrom([]string{"event", "event", "event", "analysis", "charge", "wait"}).Draw(t, "step") {
			case "event":
				event := Call{Status: rapid.SampledFrom(all).Draw(t, "status"), Version: rapid.Int64Range(1, 9).Draw(t,
					"version"), BillableSeconds: 6}
				if rapid.Bool().Draw(t, "recorded") {
					event.RecordingKey = ptr("recordings/1")
				}
				if c.Apply(event); c.Status != before && !slices.Contains(nextStatuses(before), c.Status) {
					t.Fatalf("%s became %s", before, c.Status)
				}
			case "analysis":
				c.Analyse(Analysis{Outcome: "interested"})
			case "charge":
				c.Settle(ptr(money.Micro(5000)))
			case "wait":
				now = now.Add(rapid.SampledFrom([]time.Duration{time.Second, 6 * time.Second}).Draw(t, "for"))
			}
			if c.Status == "" {
				continue
			}
			announce(before)
			announceOptIn()
		}
		if before := c.Status; before != "" {
			now = now.Add(time.Hour)
			announce(before)
			announceOptIn()
		}
		if slices.Sort(optIn); len(slices.Compact(slices.Clone(optIn))) != len(optIn) {
			t.Fatalf("an opt-in event was sent twice: %s", strings.Join(optIn, ", "))
		}
		terminal := slices.DeleteFunc(slices.Clone(events), func(e string) bool { return e == "call.ringing" || e == "call.answered" })
		want := c.Status.Terminal()
		if (len(terminal) == 1) != want {
			t.Fatalf("terminal events in status %s = %v, want one: %v", c.Status, terminal, want)
		}
		if c.Closed != want {
			t.Fatalf("c.Closed = %v, want %v", c.Closed, want)
		}
		if want && events[len(events)-1] != terminal[0] {
			t.Fatalf("last event = %s, want the terminal one, %s", events[len(events)-1], terminal[0])
		}
		if slices.Sort(events); len(slices.Compact(slices.Clone(events))) != len(events) {
			t.Fatalf("an event was sent twice: %s", strings.Join(events, ", "))
		}
	})
}

func nextRequestStatuses(from RequestStatus) []RequestStatus {
	return map[RequestStatus][]RequestStatus{
		RequestQueued:  {RequestDialing, RequestCompleted, RequestBlocked, RequestFailed, RequestCanceled},
		RequestDialing: {RequestCompleted, RequestBlocked, RequestFailed},
	}[from]
}

func TestRequest_EventsInAnyOrderKeepTheStateRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Request{Status: RequestQueued, ScheduledFor: start}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			before, now := r, start.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "at"))*time.Second)
			var changed bool
			step := rapid.SampledFrom([]string{"dial", "move", "block", "fail", "cancel", "call", "call", "charge"}).Draw(t, "step")
			switch step {
			case "dial":
				changed = r.Dial(0)
			case "move":
				changed = r.Move(now)
			case "block":
				changed = r.Block(Ending{Code: "recipient_dnd", Detail: "x"}, now)
			case "fail":
				changed = r.Fail(Ending{Code: rapid.SampledFrom([]string{"", "queue_expired"}).Draw(t, "code")}, now)
			case "cancel":
				changed = r.Cancel(now)
			case "call":
				status := rapid.SampledFrom(Statuses()).Draw(t, "status")
				changed = r.Follow(&Call{ID: uuid.New(), Status: Status(status), DialedAt: &now}, Ending{Code: "invalid_number"}, now)
			case "charge":
				r.Settle(nil)
			}
			if r.Status != before.Status && (!changed || !slices.Contains(nextRequestStatuses(before.Status), r.Status)) {
				t.Fatalf("%s: %s became %s (changed %v)", step, before.Status, r.Status, changed)
			}
			if step == "cancel" && before.Status != RequestQueued && changed {
				t.Fatalf("a %s request was canceled", before.Status)
			}
			if before.Status.Final() {
				if r.CallID != before.CallID {
					t.Fatalf("%s: call id of a %s request = %v, want %v", step, before.Status, r.CallID, before.CallID)
				}
				if r.CompletedAt != before.CompletedAt {
					t.Fatalf("%s: completed_at of a %s request = %v, want %v", step, before.Status, r.CompletedAt, before.CompletedAt)
				}
				if r.ErrorCode != before.ErrorCode {
					t.Fatalf("%s: error code of a %s request = %v, want %v", step, before.Status, r.ErrorCode, before.ErrorCode)
				}
				if r.DialedAt != before.DialedAt {
					t.Fatalf("%s: dialed_at of a %s request = %v, want %v", step, before.Status, r.DialedAt, before.DialedAt)
				}
			}
			if before.CallID != nil && *r.CallID != *before.CallID {
				t.Fatalf("%s gave the request another call", step)
			}
			if r.ScheduledFor.Before(before.ScheduledFor) {
				t.Fatalf("%s moved the request back", step)
			}
			hasCode := r.Status == RequestBlocked || r.Status == RequestFailed
			if (r.CompletedAt != nil) != r.Status.Final() {
				t.Fatalf("CompletedAt is set = %v, want %v", (r.CompletedAt != nil), r.Status.Final())
			}
			if (r.ErrorCode != nil) != hasCode {
				t.Fatalf("ErrorCode is set = %v, want %v", (r.ErrorCode != nil), hasCode)
			}
			if hasCode && *r.ErrorCode == "" {
				t.Fatalf("%s: error code of a %s request is empty", step, r.Status)
			}
		}
	})
}
