package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"ringfence.dev/test/kit"
)

// inboundTenant is a workspace with an inbound number.
type inboundTenant struct {
	*kit.Workspace
	t       *testing.T
	carrier *kit.Client
	line    string
}

// newInboundStack starts a stack in which callers talk for more than ten seconds. The stack trusts
// the certificate of hooks.
func newInboundStack(t *testing.T, hooks *kit.Receiver) *kit.Stack {
	t.Helper()
	return start(t, binaries(t), "RINGFENCE_RESTART_PAUSE=500ms", "SIMULATOR_TIME_SCALE=6", "INSTANCE_LEASE=2s",
		"OUTBOX_LEASE=1s", "UNCONFIRMED_AFTER=2s", "WEBHOOK_LEASE=3s", "WEBHOOK_TIMEOUT=2s", "SSL_CERT_FILE="+hooks.CAFile)
}

func newInboundTenant(t *testing.T, s *kit.Stack, line string, settings map[string]any) *inboundTenant {
	t.Helper()
	w := &inboundTenant{
		Workspace: tenant(t, s, nil, "10"), t: t, carrier: kit.NewClient(s.Demo.SimURL, ""), line: line,
	}
	err := w.Admin.Into(t.Context(), "PATCH", "/admin/v1/workspaces/"+w.ID, map[string]any{"inbound": settings},
		http.StatusOK, &struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	addInboundNumber(t, w.Workspace, line)
	return w
}

func (w *inboundTenant) callIn(from string) string {
	w.t.Helper()
	var started struct {
		CallID string `json:"call_id"`
	}
	body := map[string]any{"from": from, "to": w.line}
	if err := w.carrier.Into(w.t.Context(), "POST", "/inbound", body, http.StatusAccepted, &started); err != nil {
		w.t.Fatal(err)
	}
	return started.CallID
}

// read returns the call with the id, or an empty call if the request fails. The request can fail
// because the test has killed a process.
func (w *inboundTenant) read(id string) kit.Call {
	call, _ := w.Call(context.WithoutCancel(w.t.Context()), id)
	return call
}

func (w *inboundTenant) awaitStatus(id string, status ...string) (call kit.Call) {
	w.t.Helper()
	until(w.t, fmt.Sprintf("inbound call %s is %v", id, status), func() bool {
		call = w.read(id)
		return slices.Contains(status, call.Status)
	})
	return call
}

func (w *inboundTenant) transactions(kind string) (amounts []string) {
	w.t.Helper()
	path := "/admin/v1/workspaces/" + w.ID + "/wallet/transactions"
	type transaction struct {
		ID     string `json:"id"`
		Amount string `json:"amount"`
	}
	filter := url.Values{"type": {kind}}
	all, err := kit.All(w.t.Context(), w.Admin, path, filter, func(t transaction) string { return t.ID })
	if err != nil {
		w.t.Fatal(err)
	}
	for _, one := range all {
		amounts = append(amounts, one.Amount)
	}
	return amounts
}

// settled waits until no credit is held. It checks the ledger.
func (w *inboundTenant) settled() {
	w.t.Helper()
	until(w.t, "no credit is held", func() bool {
		var accounts struct {
			Held json.Number `json:"held"`
		}
		err := w.Admin.Into(context.WithoutCancel(w.t.Context()), "GET", "/admin/v1/workspaces/"+w.ID+"/wallet", nil,
			http.StatusOK, &accounts)
		return err == nil && accounts.Held.String() == "0"
	})
	found, err := w.Differences(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if len(found) != 0 {
		w.t.Errorf("differences of the wallet = %v, want none", found)
	}
}

// wantEventsOnce waits until the events of a call arrive. No event may have two ids. A delivery
// whose response was not stored can be repeated with the same event id.
func (w *inboundTenant) wantEventsOnce(hooks *kit.Receiver, call string, want ...string) {
	w.t.Helper()
	received := func() (types []string) {
		ids := map[string]bool{}
		for _, d := range hooks.Deliveries(w.ID) {
			if d.CallID == call && !ids[d.EventID] {
				ids[d.EventID] = true
				types = append(types, d.Type)
			}
		}
		return types
	}
	until(w.t, "the events of the call arrive", func() bool { return len(received()) >= len(want) })
	if got := received(); !slices.Equal(got, want) {
		w.t.Errorf("events of the call = %v, want %v", got, want)
	}
}

func TestInbound_LimitsApplyToOneWorkspace(t *testing.T) {
	s := newInboundStack(t, receiver(t))
	w := newInboundTenant(t, s, number(4_800_001), map[string]any{"max_concurrent": 1, "per_minute": "0.60"})
	other := newInboundTenant(t, s, number(4_800_002), map[string]any{"max_call_seconds": 1, "per_minute": "0.60"})
	first := w.callIn(number(4_810_001))
	w.awaitStatus(first, "in_progress")
	busy := w.awaitStatus(w.callIn(number(4_810_002)), "busy", "in_progress", "completed")
	if busy.Status != "busy" {
		t.Errorf("status of the second call = %q, want busy", busy.Status)
	}
	if busy.HangupCause == nil || *busy.HangupCause != "user_busy" {
		t.Errorf("hangup cause = %v, want user_busy", busy.HangupCause)
	}

	longest := other.callIn(number(4_810_003))
	call := other.awaitStatus(longest, "completed", "failed", "busy")
	if call.HangupCause == nil || *call.HangupCause != "max_duration" {
		t.Errorf("hangup cause of the longest call = %v, want max_duration", call.HangupCause)
	}
	other.settled()
	if got := other.transactions("capture"); len(got) != 1 || got[0] != "0.01" {
		t.Errorf("captures of the longest call = %v, want 0.01", got)
	}
	until(t, "the charge is shown", func() bool { return other.read(longest).CreditsCharged == "0.01" })

	w.awaitStatus(first, "completed")
	w.settled()
	if got := len(w.transactions("hold")); got != 1 {
		t.Errorf("holds = %d, want 1: the busy call has none", got)
	}
	third := w.callIn(number(4_810_004))
	w.awaitStatus(third, "in_progress", "completed")
}

// A process dies while an inbound call is in progress. The hold is settled once, each event of the
// call is sent once, and the charge is the price of the talk time. A call whose dialer died ends as
// failed and costs nothing, unless the caller hung up before another dialer took the call over.
func TestInbound_HoldIsSettledOnceIfAProcessIsKilled(t *testing.T) {
	hooks := receiver(t)
	s := newInboundStack(t, hooks)
	for i, victim := range []string{"billing-wallet", "dialer", "calls"} {
		t.Run(victim, func(t *testing.T) {
			w := newInboundTenant(t, s, number(4_820_000+i), map[string]any{"per_minute": "0.60"})
			if _, err := w.Subscribe(t.Context(), hooks); err != nil {
				t.Fatal(err)
			}
			id := w.callIn(number(4_830_001 + i))
			w.awaitStatus(id, "in_progress")
			until(t, victim+" is killed", func() bool { return s.KillOne(victim, 0) })
			call := w.awaitStatus(id, "completed", "failed")
			if victim != "dialer" && call.Status != "completed" {
				t.Errorf("status = %q, want completed", call.Status)
			}
			w.settled()
			w.wantEventsOnce(hooks, id, "call.ringing", "call.answered", "call."+call.Status)
			captures, releases := w.transactions("capture"), w.transactions("release")
			if got := len(captures) + len(releases); got != 1 {
				t.Fatalf("captures = %v, releases = %v, want one of them", captures, releases)
			}
			if call.Status == "failed" {
				if len(captures) != 0 {
					t.Errorf("captures of a failed call = %v, want none", captures)
				}
				return
			}
			if len(captures) != 1 {
				t.Fatalf("captures = %v, want one", captures)
			}
			until(t, "the charge is shown", func() bool { return w.read(id).CreditsCharged.String() == captures[0] })
			want := fmt.Sprintf("%.2f", 0.01*float64(*call.Timings.TalkSeconds))
			if charged, err := json.Number(captures[0]).Float64(); err != nil {
				t.Error(err)
			} else if got := fmt.Sprintf("%.2f", charged); got != want {
				t.Errorf("charge = %s, want %s for %d s", got, want, *call.Timings.TalkSeconds)
			}
		})
	}
}
