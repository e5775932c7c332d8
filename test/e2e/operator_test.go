package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

type operator struct {
	t         *testing.T
	s         *kit.Stack
	workspace string
}

// runCommand runs a command that must succeed. The character '|' separates the texts that the
// output must contain.
func (o operator) runCommand(want string, args ...string) string {
	o.t.Helper()
	return o.types("", want, args...)
}

func (o operator) types(stdin, want string, args ...string) string {
	o.t.Helper()
	output, err := o.s.RunCLI(o.t.Context(), stdin, append([]string{"-w", o.workspace}, args...)...)
	if err != nil {
		o.t.Errorf("%v", err)
	}
	for word := range strings.SplitSeq(want, "|") {
		if !strings.Contains(output, word) {
			o.t.Errorf("output of ringfence %s = %q, want it to contain %q", strings.Join(args, " "), output, word)
		}
	}
	return output
}

func (o operator) makes(args ...string) string {
	o.t.Helper()
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(o.runCommand("", append(args, "-o", "json")...)), &made); err != nil {
		o.t.Fatalf("json.Unmarshal: %v", err)
	} else if made.ID == "" {
		o.t.Fatalf(`made.ID is empty, want a value; strings.Join(args, " ") = %s`, strings.Join(args, " "))
	}
	return made.ID
}

func (o operator) refused(want string, args ...string) {
	o.t.Helper()
	output, err := o.s.RunCLI(o.t.Context(), "", append([]string{"-w", o.workspace}, args...)...)
	if err == nil {
		o.t.Fatalf("err = %v, want a value", err)
	}
	sharedstack.Contains(o.t, "err.Error()", err.Error(), want)
	sharedstack.Equal(o.t, "output", output, "")
}

func TestOperator_CommandsSucceedOnARunningStack(t *testing.T) {
	system := stack(t)
	s, hooks := system.Stack, system.Hooks
	o := operator{t: t, s: s}
	o.workspace = o.makes("workspaces", "add", "Acme", "--plan", "scale", "--set", `calling_policy={"window":{"start":"00:00","end":"24:00"},"timezone":"recipient"}`)
	o.runCommand(short(o.workspace)+"|Acme|scale|active", "workspaces", "list", "--all")
	o.runCommand(o.workspace+"|Acme", "workspaces", "list", "--after", "1h", "-o", "wide")
	o.runCommand("calls_per_second       7|webhooks  false", "workspaces", "change", "--set", "calls_per_second=7",
		"--set", "features.webhooks=false")
	o.runCommand("suspended", "workspaces", "suspend", "--yes")
	o.runCommand("active", "workspaces", "resume")
	o.refused("plan", "workspaces", "change", "--set", "plan=gold")
	o.refused("--yes", "workspaces", "suspend")
	o.refused("404", "workspaces", "show", "-w", "01a1fe16-7bf6-7d8f-b534-2e98b17693a4")

	key := o.makes("keys", "add", "crm", "--access", "write")
	o.runCommand(short(key)+"|crm|write", "keys", "list")
	o.runCommand("", "keys", "revoke", short(key), "--yes")
	o.setUpCalls()
	o.moveMoney()
	o.keepRecords()
	o.runCommand("operator|local|wallet_transaction.create|workspace.create", "audit", "list", "--all")
	o.runCommand("0 differences", "services", "reconcile")
	o.runCommand(" 0 broken", "services", "verify")
	o.runCommand("nothing is parked", "services", "parked", "calls")
	o.runCommand("[]", "services", "parked", "calls", "-o", "json")
	o.runCommand(`"differences": []`, "services", "reconcile", "-o", "json")
	o.runCommand(`"broken": []`, "services", "verify", "-o", "json")
	o.refused("must be one of", "services", "parked", "phone")
	o.runCommand(`"applied": 0`, "services", "replay", "calls", "dial-events.v1", "-o", "json")
	o.runCommand(`"unopened": []`, "services", "reseal", "-o", "json")
	o.refused("does not read topic", "services", "replay", "calls", "nothing.v1")

	w := tenant(t, s, hooks, "10")
	o.workspace = w.ID
	o.replayWebhooks(w, hooks)
}

func (o operator) setUpCalls() {
	o.t.Helper()
	agent := o.makes("agents", "add", "Ada", "--set", "max_call_seconds=60")
	o.runCommand("max_call_seconds|90", "agents", "change", agent, "--set", "max_call_seconds=90")
	o.runCommand(short(agent)+"|Ada", "agents", "list")
	o.types("sk-of-the-model-itself\n", "has_key|true", "agents", "key", agent)
	o.runCommand("deleted", "agents", "unkey", agent, "--yes")
	number := o.makes("numbers", "add", "+14155550142", agent)
	o.runCommand("+14155550142|"+short(agent), "numbers", "list")
	o.runCommand("deleted", "numbers", "remove", number, "--yes")
	o.runCommand("deleted", "agents", "remove", agent, "--yes")
	o.refused("404", "agents", "show", agent)

	output := o.types(
		`{"name":"carrier","host":"sip.example.net","username":"u","password":"s3cret-of-the-trunk"}`, "",
		"trunks", "add", "--file", "-", "-o", "json",
	)
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(output), &made); err != nil {
		o.t.Errorf("json.Unmarshal: %v", err)
	} else if strings.Contains(output, "s3cret") {
		o.t.Errorf(`output = %q, want it without "s3cret"`, output)
	}
	o.runCommand("channels|5|disabled", "trunks", "change", made.ID, "--set", "channels=5", "--set", "status=disabled")
	o.runCommand("sip.example.net", "trunks", "list")
	o.runCommand("deleted", "trunks", "remove", made.ID, "--yes")
}

func (o operator) moveMoney() {
	o.t.Helper()
	for range 2 { // the second top-up with the same reference adds no credit
		o.runCommand("top_up|25|inv-1", "wallet", "top-up", "25.00", "inv-1")
	}
	output, err := o.s.RunCLI(o.t.Context(), "", "-w", o.workspace, "wallet", "top-up", "26.00", "inv-1")
	if err == nil {
		o.t.Fatalf("err = %v, want a value", err)
	}
	sharedstack.Contains(o.t, "output", output, "25")
	sharedstack.Contains(o.t, "err.Error()", err.Error(), "no credit was changed")
	o.runCommand("adjustment|-2.5", "wallet", "adjust", "--", "-2.50", "inv-2")
	o.runCommand("spendable|22.5", "wallet", "show")
	o.runCommand("inv-1|inv-2", "wallet", "transactions")
	o.refused("insufficient_credits", "wallet", "adjust", "--", "-100", "inv-3")
	o.types(`[{"prefix":"+44","per_minute":"0.12","increment_seconds":6}]`, "+44|0.12|6", "wallet", "set-rates", "-", "--yes")
	o.runCommand("+44", "wallet", "rates")
	o.runCommand("ok|true", "wallet", "reconcile")
}

func (o operator) keepRecords() {
	o.t.Helper()
	o.runCommand("consented", "contacts", "grant", "+14155550143", "--source", "web form", "--evidence",
		`{"ip":"192.0.2.1"}`)
	o.runCommand("withdrawn", "contacts", "withdraw", "+14155550143", "--source", "letter")
	o.runCommand("consent_granted|consent_withdrawn|web form|letter", "contacts", "records", "--phone", "+14155550143")
	o.runCommand("may_be_called|false|consent_withdrawn", "contacts", "preview", "+14155550143")
	o.runCommand("", "contacts", "decisions")
	o.refused("--yes", "contacts", "erase", "+14155550143")
	o.runCommand("erased", "contacts", "erase", "+14155550143", "--yes")
	o.runCommand("operator:", "contacts", "erasures")

	o.runCommand("applied|2", "opt-outs", "add", "+14155550144", "+14155550145", "--reason", "letters")
	o.runCommand("dnd_status      dnd", "contacts", "consent", "+14155550144")
	list := filepath.Join(o.t.TempDir(), "list.csv")
	var lines strings.Builder
	for n := range 20_000 { // the list is so long that the command sends several parts
		fmt.Fprintf(&lines, "+1415%07d\n", 2_000_000+n)
	}
	lines.WriteString("nobody\n")
	if err := os.WriteFile(list, []byte(lines.String()), 0o600); err != nil {
		o.t.Fatal(err)
	}
	// The list contains an unknown number, so the command fails.
	output, err := o.s.RunCLI(o.t.Context(), "", "-w", o.workspace, "opt-outs", "import", list)
	if err == nil {
		o.t.Fatalf("err = %v, want a value", err)
	}
	sharedstack.Contains(o.t, "err.Error()", err.Error(), "1 rows have no valid number")
	sharedstack.Contains(o.t, "output", output, "20000")
	sharedstack.Contains(o.t, "output", output, "nobody")
	o.runCommand("20000", "opt-outs", "imports")
	o.runCommand("", "opt-outs", "imports", "--limit", "1")
}

func (o operator) replayWebhooks(w *kit.Workspace, hooks *kit.Receiver) {
	o.t.Helper()
	placed, err := w.Place(o.t.Context(), map[string]any{"agent_id": w.AgentID, "to": "+14155550100"})
	if err != nil {
		o.t.Fatal(err)
	}
	hook := []struct{ ID string }{}
	if err := json.Unmarshal([]byte(o.runCommand("", "webhooks", "list", "-o", "json")), &hook); err != nil {
		o.t.Fatalf("webhooks list: json.Unmarshal: %v", err)
	} else if len(hook) != 1 {
		o.t.Fatalf("webhooks list: length of hook = %d, want 1", len(hook))
	}
	delivered := []struct {
		ID     string
		CallID string `json:"call_id"`
	}{}
	until(o.t, "three deliveries are listed as delivered", func() bool {
		output := o.runCommand("", "webhooks", "deliveries", hook[0].ID, "--status", "delivered", "-o", "json")
		return json.Unmarshal([]byte(output), &delivered) == nil && len(delivered) == 3
	})
	o.runCommand("call.completed", "webhooks", "deliveries", hook[0].ID)
	o.runCommand("history", "webhooks", "delivery", hook[0].ID, delivered[0].ID)
	o.runCommand("replayed|3", "webhooks", "replay", hook[0].ID, "--call", delivered[0].CallID)
	o.runCommand("replayed|0", "webhooks", "replay", hook[0].ID, "--failed", "2026-01-01T00:00:00Z")
	o.refused("no delivery was selected", "webhooks", "replay", hook[0].ID)
	o.runCommand("The number was called. The call ended completed, normal_clearing.|"+
		"precheck|dial|call.completed|interested",
		"calls", "why", placed.ID)
	o.runCommand(short(placed.ID)+"|+14155550100|completed",
		"calls", "requests", "--status", "completed", "--to", "+14155550100", "--after", "1h")
	o.runCommand(short(delivered[0].CallID)+"|outbound",
		"calls", "list", "--direction", "outbound", "--request", short(placed.ID))
	for _, of := range []string{short(placed.ID), delivered[0].CallID, short(delivered[0].CallID)} {
		o.runCommand("The number was called. The call ended completed, normal_clearing.", "calls", "why", of)
	}
	o.cancelRequest(w)
	o.runCommand("call_request.created|decision|call.ended|delivery.attempted", "calls", "timeline", placed.ID)
	o.runCommand("The number was called.|opt_out|no opt-out on record|calling_window", "calls", "why", delivered[0].CallID)
	o.whyNot(w)
	until(o.t, "the call's three events came twice", func() bool { return len(hooks.Deliveries(w.ID)) >= 6 })

	o.runCommand("deliveries|0", "webhooks", "replay", hook[0].ID, "--since", "2026-01-01T00:00:00Z", "--only-failed")
	o.runCommand("status|queued", "webhooks", "resend", hook[0].ID, delivered[0].ID)
	until(o.t, "the event was sent again", func() bool { return len(hooks.Deliveries(w.ID)) >= 7 })

	o.runCommand("status|paused", "webhooks", "pause", hook[0].ID)
	o.refused("ringfence -w "+w.ID+" webhooks resume "+hook[0].ID,
		"webhooks", "replay", hook[0].ID, "--failed", "2026-01-01T00:00:00Z")
	o.runCommand("status|active", "webhooks", "resume", hook[0].ID)
	o.runCommand("deleted|true", "webhooks", "remove", hook[0].ID, "--yes")
	o.refused("404", "webhooks", "show", hook[0].ID)
}

func (o operator) cancelRequest(w *kit.Workspace) {
	o.t.Helper()
	placed, err := w.Place(o.t.Context(), map[string]any{
		"agent_id": w.AgentID, "to": "+14155550147", "scheduled_for": time.Now().Add(time.Hour),
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.runCommand(placed.ID+"|canceled", "calls", "cancel", short(placed.ID))
	o.refused("not_cancelable", "calls", "cancel", placed.ID)
	o.runCommand("operator|local|call_request.cancel", "audit", "list", "--limit", "5")
}

// short returns the first 13 characters of an id. The tables of the CLI contain this short form.
func short(id string) string { return id[:13] }

// whyNot checks the output of `calls why` for a call request that was accepted and then not dialed,
// because the person opted out.
func (o operator) whyNot(w *kit.Workspace) {
	o.t.Helper()
	placed, err := w.Place(o.t.Context(), map[string]any{"agent_id": w.AgentID, "to": "+14155550146", "scheduled_for": time.Now().Add(time.Hour)})
	if err != nil {
		o.t.Fatal(err)
	}
	o.runCommand("The number is not called yet: the call is scheduled for", "calls", "why", placed.ID)
	o.runCommand("applied|1", "opt-outs", "add", "+14155550146")
	o.makeDue(placed.ID)
	until(o.t, "the request is blocked", func() bool {
		now, err := w.Request(o.t.Context(), placed.ID)
		return err == nil && now.Status == "blocked"
	})
	o.runCommand("The number was not called: blocked, recipient_dnd.|precheck|dial|recipient_dnd|an opt-out is on record",
		"calls", "why", placed.ID)
	o.runCommand(
		"The number cannot be called.|GATES NOW|an opt-out is on record|precheck|no opt-out on record",
		"calls",
		"why",
		"+14155550146",
	)
}

// makeDue makes a call request in the dialer's queue due immediately.
func (o operator) makeDue(id string) {
	o.t.Helper()
	conn := superuser(o.t, o.s)
	const due = "UPDATE dialer.dial_queue SET due_at = now(), look_at = now() WHERE call_request_id = $1 AND state = 'queued'"
	until(o.t, "the dialer has the request", func() bool {
		done, err := conn.Exec(o.t.Context(), due, id)
		if err != nil {
			o.t.Fatal(err)
		}
		return done.RowsAffected() == 1
	})
}
