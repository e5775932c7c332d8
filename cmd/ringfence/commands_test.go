package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// hostileText contains control characters: 7-bit and 8-bit escape sequences, and bidirectional
// controls.
const hostileText = "a\x1b[2Jb\u009b31mc\u202ed\u2066e\rf"

// adminServer implements /admin/v1 and records the requests. It responds to every request with the
// same JSON, which contains hostileText. The JSON can be decoded as a page and as a single object.
type adminServer struct {
	status int
	asked  []string
}

func (o *adminServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.asked = append(o.asked, r.Method+" "+r.URL.String())
	body, _ := json.Marshal(map[string]any{
		"id": "7", "name": hostileText, hostileText: hostileText, "deep": map[string]any{"x": hostileText},
		"ok": true, "replayed": 1, "done_at": "2026-06-04T09:00:00Z", "status": hostileText,
		"call_id": "8", "scheduled_for": "2026-06-04T09:00:00Z", "error_code": hostileText,
		"error_detail": hostileText, "hangup_cause": hostileText,
		"data": []any{map[string]any{"id": "7", "name": hostileText, "url": hostileText, "prefix": hostileText,
			"path": hostileText, "reason": hostileText, "last_error": hostileText, "x": []string{hostileText}}},
		"has_more": false,
	})
	if o.status != http.StatusOK {
		body, _ = json.Marshal(map[string]any{"error": map[string]string{"code": "number_exists", "message": hostileText}})
	}
	w.WriteHeader(o.status)
	// Write U+202E unescaped, because Go's encoder escapes only some of the control characters.
	_, _ = w.Write([]byte(strings.ReplaceAll(string(body), `\u202e`, "\u202e")))
}

func admin(t *testing.T, status int) *adminServer {
	t.Helper()
	o := &adminServer{status: status}
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	t.Setenv("RINGFENCE_ADMIN_TOKEN", "a-token-of-the-test")
	t.Setenv("RINGFENCE_WORKSPACE", "01a1fe16-7bf6-7d8f-b534-2e98b17693a4")
	// This script replaces the services' binaries. It prints hostile text and log lines. With --json,
	// it prints its result as JSON.
	via := filepath.Join(t.TempDir(), "via")
	script := fmt.Appendf(nil, `#!/bin/sh
printf 'a\n%[1]s\n{"msg":"%[1]s"}\n%[1]s' >&2
case $* in *--json) printf '[{"error":"%[1]s"}]' ;; *) printf '%%s' "$* %[1]s" ;; esac
`, "\u202e\u009b")
	if err := os.WriteFile(via, script, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RINGFENCE_VIA", via+" {service}")
	return o
}

func operators(t *testing.T) (lines [][]string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rates.json")
	if err := os.WriteFile(file, []byte(`[{"prefix":"+1","per_minute":"0.05"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	var cli commands
	parser, err := cli.parser(io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(false) {
		if slices.Contains([]string{"demo", "listen", "completion", "status", "usage"}, leaf.Name) {
			continue
		}
		line := strings.Fields(leaf.Path())[:2]
		for _, flag := range leaf.Flags {
			switch {
			case flag.Required:
				line = append(line, "--"+flag.Name+"=x")
			case flag.Name == "yes", flag.Name == "set":
				line = append(line, "--"+flag.Name+map[string]string{"yes": "", "set": "=name=x"}[flag.Name])
			case line[0] == "dialing" && flag.Name == "everything":
				line = append(line, "--everything")
			case line[1] == "replay" && flag.Name == "call":
				line = append(line, "--call=7")
			}
		}
		for _, given := range leaf.Positional {
			line = append(line, sample(given, file))
		}
		lines = append(lines, line)
	}
	return lines
}

func sample(of *kong.Positional, file string) string {
	switch {
	case of.Enum != "":
		return of.EnumSlice()[0]
	case of.Name == "file":
		return file
	}
	return "7"
}

func wantNoControls(t *testing.T, text string) {
	t.Helper()
	if at := strings.IndexAny(text, "\x1b\r\u009b\u202e\u2066"); at >= 0 {
		t.Errorf("text = %q, which has a control character at byte %d", text, at)
	}
}

func TestCommands_PrintHelpAndOutputAndErrors(t *testing.T) {
	lines := operators(t)
	if len(lines) < 60 {
		t.Fatalf("%d commands", len(lines))
	}
	for _, line := range lines {
		t.Run(strings.Join(line[:2], " "), func(t *testing.T) {
			name := strings.Join(line[:2], " ")
			code, out, faults := runCommand(t, append(line[:2:2], "--help")...)
			wantCode(t, name+" --help", code, 0)
			wantText(t, "stderr of --help", faults, "")
			wantContains(t, "help", out, "Usage: ringfence "+name)
			if line[1] == "key" {
				return // this command reads a secret from standard input
			}
			admin(t, http.StatusOK)
			code, out, faults = runCommand(t, line...)
			wantCode(t, name, code, 0)
			if out == "" {
				t.Error("the command printed nothing")
			}
			wantNoControls(t, out+faults)
			code, out, faults = runCommand(t, append(line, "-o", "json")...)
			wantCode(t, name+" -o json", code, 0)
			if !json.Valid([]byte(out)) {
				t.Errorf("output with -o json = %q, want JSON", out)
			}
			wantNoControls(t, out+faults)
			for aside := range strings.Lines(faults) {
				if !json.Valid([]byte(aside)) {
					t.Errorf("%v -o json: output = %q", line, aside)
				}
			}
		})
	}
}

func TestUsage_PrintsCSVOrJSON(t *testing.T) {
	const file = "date,agent_name,calls,credits\r\n2026-06-04,\"'=Ada\x1b[2J, 1\",12,0.5\r\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.URL.RawQuery, "month=2026-06"; got != want {
			t.Errorf("query = %q, want %q", got, want)
		}
		_, _ = w.Write([]byte(file))
	}))
	t.Cleanup(server.Close)
	admin(t, http.StatusOK)
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	code, out, faults := runCommand(t, "usage", "--month", "2026-06")
	wantCode(t, "usage", code, 0)
	wantText(t, "CSV", out, "date,agent_name,calls,credits\n2026-06-04,\"'=Ada\ufffd[2J, 1\",12,0.5\n")
	wantText(t, "stderr", faults, "")
	code, out, _ = runCommand(t, "usage", "--month", "2026-06", "-o", "json")
	wantCode(t, "usage -o json", code, 0)
	wantText(t, "JSON", out, `[{"agent_name":"'=Ada\u001b[2J, 1","calls":12,"credits":0.5,"date":"2026-06-04"}]`+"\n")
	code, _, _ = runCommand(t, "usage")
	wantCode(t, "usage without a month", code, 2)
}

func TestCommands_PrintErrorsAsTextAndJSON(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		args   []string
		code   int
		want   string
	}{
		{"an error of the API", 409, []string{"numbers", "add", "+14155550100", "7"}, 1, `"code":"number_exists"`},
		{"a service's command that fails", 200, []string{"services", "parked", "calls"}, 1, `{"error":{"code":"failed","message":"calls replay --json: exit status 1"}}`},
		{"a negative amount", 200, []string{"wallet", "adjust", "-2.50", "x"}, 2,
			"write -- before it, as in adjust -- -2.50 REFERENCE."},
		{"a misspelled command", 200, []string{"workspace", "list"}, 2, `did you mean \"workspaces\"? `},
		{"an empty topic", 200, []string{"services", "replay", "calls", ""}, 2, "the topic is empty"},
		{"a workspace without a name", 200, []string{"workspaces", "add", ""}, 2, "the name is empty"},
		{"an unknown mode", 200, []string{"workspaces", "create", "Acme", "--mode", "trial"}, 2, `"code":"not_understood"`},
		{"an agent without a name", 200, []string{"agents", "add", ""}, 2, "the name is empty"},
		{"an incomplete JSON object as evidence", 200,
			[]string{"contacts", "grant", "+14155550100", "--source=x",
				`--evidence={"form":`}, 2, "begins like a JSON object but is not valid JSON"},
		{"no such command", 200, []string{"dance"}, 2, `"code":"not_understood"`},
		{"an incomplete command", 200, []string{"keys"}, 2, `"code":"not_understood"`},
		{"no such flag", 200, []string{"keys", "list", "--colour"}, 2, `"code":"not_understood"`},
		{"a replay without a selection", 200, []string{"webhooks", "replay", "7"}, 2, `"code":"not_understood"`},
		{"a replay until a time without since", 200,
			[]string{"webhooks", "replay", "7", "--call", "8", "--until", "2026-06-04T10:00:00Z"}, 2,
			"--until and --only-failed need --since"},
		{"no such service", 200, []string{"services", "parked", "phone"}, 2, `"code":"not_understood"`},
		{"an empty id", 200, []string{"agents", "show", ""}, 1, `\"\" is not a valid id`},
		{"an id that consists of dots", 200, []string{"keys", "revoke", "..", "--yes"}, 1, `\"..\" is not a valid id`},
		{"a workspace id that consists of dots", 200, []string{"-w", "..", "workspaces", "show"}, 1,
			`\"..\" is not a valid id`},
		{"a secret as an argument", 200, []string{"trunks", "change", "7", "--set", "password=s3cret"}, 1, "--file -"},
		{"a limit of zero", 200, []string{"keys", "list", "--limit", "0"}, 1, "at least 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := admin(t, test.status)
			t.Setenv("RINGFENCE_VIA", "false")
			code, out, faults := runCommand(t, append([]string{"-o", "json"}, test.args...)...)
			var printed struct {
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal([]byte(faults), &printed); err != nil {
				t.Fatalf("stderr with -o json = %q: %v", faults, err)
			}
			if printed.Error.Message == "" {
				t.Errorf("stderr with -o json = %q, want a message", faults)
			}
			wantContains(t, "stderr with -o json", faults, test.want)
			wantCode(t, test.name+" with -o json", code, test.code)
			if strings.Contains(out+faults, "s3cret") {
				t.Errorf("the secret was printed: %q %q", out, faults)
			}
			wantNoControls(t, faults)
			if test.status == http.StatusOK && len(o.asked) > 0 {
				t.Errorf("requests = %q, want none", o.asked)
			}
			code, _, faults = runCommand(t, test.args...)
			wantCode(t, test.name, code, test.code)
			wantOneLine(t, "stderr", faults)
			wantContains(t, "stderr", faults, "ringfence: ")
		})
	}
}

func TestCommands_PrintEachErrorFieldOnce(t *testing.T) {
	for _, test := range []struct {
		status           int
		body             string
		want, wantInJSON string
	}{
		{422, `{"error":{"code":"validation_error","message":"plan must be one of starter, growth, scale."}}`,
			"ringfence: plan must be one of starter, growth, scale. (422 validation_error)\n",
			`{"error":{"code":"validation_error","message":"plan must be one of starter, growth, scale.","status":422,"request_id":"request-7"}}` + "\n"},
		{503, `{"error":{"code":"unavailable","message":"The wallet is not available at the moment."}}`,
			"ringfence: The wallet is not available at the moment. (503 unavailable, request request-7)\n",
			`{"error":{"code":"unavailable","message":"The wallet is not available at the moment.","status":503,"request_id":"request-7"}}` + "\n"},
		{502, `<html>`,
			"ringfence: PATCH /admin/v1/workspaces/01a1fe16-7bf6-7d8f-b534-2e98b17693a4 returned 502, which is not a " +
				"response of the gateway: check that RINGFENCE_ADMIN_URL is the admin address\n",
			`{"error":{"code":"failed","message":"PATCH /admin/v1/workspaces/01a1fe16-7bf6-7d8f-b534-2e98b17693a4 ` +
				`returned 502, which is not a response of the gateway: check that RINGFENCE_ADMIN_URL is the admin address",` +
				`"status":502,"request_id":"request-7"}}` + "\n"},
	} {
		admin(t, http.StatusOK)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Request-Id", "request-7")
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		}))
		t.Cleanup(server.Close)
		t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
		if _, _, faults := runCommand(t, "workspaces", "change", "--set", "plan=gold"); faults != test.want {
			t.Errorf("stderr = %q, want %q", faults, test.want)
		}
		if _, _, faults := runCommand(t, "-o", "json", "workspaces", "change", "--set", "plan=gold"); faults != test.wantInJSON {
			t.Errorf("stderr = %q, want %q", faults, test.wantInJSON)
		}
	}
}

func TestServices_PrintEachErrorOnce(t *testing.T) {
	admin(t, http.StatusOK)
	via := filepath.Join(t.TempDir(), "via")
	if err := os.WriteFile(via, []byte("#!/bin/sh\necho looking >&2\necho \"$*: it does not read that\" >&2\necho gone >&2\nexit $STATUS\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RINGFENCE_VIA", via+" {service}")
	t.Setenv("STATUS", "1")
	code, out, faults := runCommand(t, "services", "replay", "calls", "x.v1")
	wantCode(t, "replay", code, 1)
	wantText(t, "output of replay", out, "")
	wantText(t, "stderr of replay", faults, "looking\ngone\nringfence: calls replay x.v1: it does not read that\n")
	want := `{"remark":"looking"}` + "\n" + `{"remark":"gone"}` + "\n" + `{"error":{"code":"failed","message":"calls replay x.v1 --json: it does not read that"}}` + "\n"
	code, out, faults = runCommand(t, "-o", "json", "services", "replay", "calls", "x.v1")
	wantCode(t, "replay -o json", code, 1)
	wantText(t, "output of replay -o json", out, "")
	wantText(t, "stderr of replay -o json", faults, want)
	t.Setenv("STATUS", "0")
	code, _, faults = runCommand(t, "services", "replay", "calls", "x.v1")
	wantCode(t, "replay", code, 0)
	wantText(t, "stderr of replay", faults, "looking\ngone\nit does not read that\n")
}

func TestCommands_DestructiveCommandsNeedAConfirmation(t *testing.T) {
	var careful []string
	for _, line := range operators(t) {
		i := slices.Index(line, "--yes")
		if i < 0 {
			continue
		}
		careful = append(careful, strings.Join(line[:2], " "))
		o := admin(t, http.StatusOK)
		code, out, faults := runCommand(t, slices.Delete(slices.Clone(line), i, i+1)...)
		name := strings.Join(line[:2], " ")
		wantCode(t, name, code, 1)
		wantText(t, "output of "+name, out, "")
		wantContains(t, "stderr of "+name, faults, "--yes")
		if len(o.asked) > 0 {
			t.Errorf("%s: requests = %q, want none", name, o.asked)
		}
	}
	want := []string{"agents remove", "agents unkey", "contacts erase", "keys revoke", "members remove", "numbers remove",
		"people demote", "people recover", "trunks remove", "wallet set-rates", "webhooks remove", "workspaces suspend"}
	if slices.Sort(careful); !slices.Equal(careful, want) {
		t.Errorf("careful are %q, want %q", careful, want)
	}
}

func TestCommands_SendTheReasonOfAChange(t *testing.T) {
	for _, args := range [][]string{
		{"calls", "hangup", "01970000-0001-7000-8000-000000000001"},
		{"calls", "hangup", "--all"},
		{"contacts", "erase", "+14155550100", "--yes"},
		{"workspaces", "suspend", "--yes"},
	} {
		var reasons []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reasons = append(reasons, r.Header.Get("Ringfence-Reason"))
			_, _ = fmt.Fprint(w, `{}`)
		}))
		t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
		t.Setenv("RINGFENCE_ADMIN_TOKEN", "a-token-of-the-test")
		t.Setenv("RINGFENCE_WORKSPACE", "1")
		name := strings.Join(args, " ")
		code, _, faults := runCommand(t, append(args, "--reason", "complaint 7")...)
		server.Close()
		if code != 0 {
			t.Errorf("%s: exit status = %d, stderr = %q", name, code, faults)
		}
		if !slices.Equal(reasons, []string{"complaint 7"}) {
			t.Errorf("%s: reasons of the requests = %q, want the one given", name, reasons)
		}
	}
}

func TestWorkspacesAdd_FlagsOverrideDefaults(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		_, _ = fmt.Fprint(w, `{"id":"7","name":"","plan":"","currency":"","mode":"live"}`)
	}))
	defer server.Close()
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	t.Setenv("RINGFENCE_ADMIN_TOKEN", "a-token-of-the-test")
	for want, args := range map[string][]string{
		`{"currency":"EUR","name":"Acme","plan":"scale"}`:                {"--set", "plan=scale", "--set", "currency=EUR"},
		`{"currency":"USD","name":"Acme","plan":"growth"}`:               {},
		`{"currency":"USD","mode":"live","name":"Acme","plan":"growth"}`: {"--mode", "live"},
		`{"currency":"GBP","name":"Acme","plan":"starter"}`: {"--plan", "starter", "--currency", "GBP",
			"--set", "plan=scale"},
		`{"currency":"USD","name":"Acme","plan":"growth","typo":1}`: {"--set", "typo=1"},
	} {
		code, _, faults := runCommand(t, append([]string{"workspaces", "add", "Acme"}, args...)...)
		wantCode(t, strings.Join(args, " "), code, 0)
		wantText(t, "request body", got, want)
		if got, want := strings.Contains(faults, "typo was ignored"), strings.Contains(want, "typo"); got != want {
			t.Errorf("remark about the unknown setting = %v, want %v; stderr: %q", got, want, faults)
		}
	}
}

// An earlier version of the gateway ignores the field mode and creates a live workspace.
func TestWorkspacesAdd_FailsIfTheGatewayIgnoresTheMode(t *testing.T) {
	admin(t, http.StatusOK)
	code, _, faults := runCommand(t, "workspaces", "create", "Acme", "--mode", "test")
	wantCode(t, "workspaces create --mode test", code, 1)
	wantContains(t, "stderr", faults, "created the live workspace 7")
}

func TestTopUp_FailsIfTheReferenceWasUsed(t *testing.T) {
	for line, want := range map[string]int{"top-up 25.00 inv-1": 0, "top-up 25 inv-1": 0, "top-up 26 inv-1": 1, "adjust 25.00 inv-1": 1} {
		admin(t, http.StatusOK)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"id":"7","type":"top_up","amount":25,"reference":"inv-1"}`)
		}))
		t.Cleanup(server.Close)
		t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
		code, out, faults := runCommand(t, append([]string{"wallet"}, strings.Fields(line)...)...)
		const refusal = "ringfence: no credit was changed: reference inv-1 is already used by the top_up of 25\n"
		wantCode(t, line, code, want)
		wantContains(t, "output of "+line, out, "top_up")
		wantText(t, "stderr of "+line, faults, map[int]string{0: "", 1: refusal}[want])
	}
}

// The printed rate must equal the default rate in billing-wallet.
func TestRates_PrintTheDefaultRate(t *testing.T) {
	wallet, err := os.ReadFile("../../services/billing-wallet/internal/holds/rates.go")
	if err != nil {
		t.Fatal(err)
	}
	const rate = "func Default() Rate { return Rate{PerMinute: 50_000, IncrementSeconds: 1} }"
	wantContains(t, "rate.go", string(wallet), rate)
	const standard = "is 0.05 a minute, billed by the second."
	for page, texts := range map[string][3]string{
		`[]`: {"", "No prefix has its own rate: the default rate for all numbers " + standard, "[]\n"},
		`[{"prefix":"+44","per_minute":0.12,"increment_seconds":6}]`: {"PREFIX  PER MINUTE  INCREMENT SECONDS\n+44     0.12        6\n",
			"The default rate for numbers without one of these prefixes " + standard, "[\n  {\n    \"prefix\": \"+44\",\n    " +
				"\"per_minute\": 0.12,\n    \"increment_seconds\": 6\n  }\n]\n"},
	} {
		admin(t, http.StatusOK)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"data":%s,"has_more":false}`, page)
		}))
		t.Cleanup(server.Close)
		t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
		code, out, asides := runCommand(t, "wallet", "rates")
		wantCode(t, "rates "+page, code, 0)
		wantText(t, "output", out, texts[0])
		wantText(t, "stderr", asides, texts[1]+"\n")
		code, out, asides = runCommand(t, "wallet", "rates", "-o", "json")
		wantCode(t, "rates -o json "+page, code, 0)
		wantText(t, "output with -o json", out, texts[2])
		wantText(t, "stderr with -o json", asides, fmt.Sprintf("{\"remark\":%q}\n", texts[1]))
	}
}

func TestReplay_EndsIfNoDeliveryIsReplayed(t *testing.T) {
	left := 3
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := min(left, 2)
		left -= now
		_, _ = fmt.Fprintf(w, `{"replayed":%d,"has_more":true}`, now)
	}))
	defer server.Close()
	admin(t, http.StatusOK)
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	code, out, faults := runCommand(t, "webhooks", "replay", "7", "--failed", "2026-06-04T09:00:00Z")
	wantCode(t, "replay", code, 0)
	wantText(t, "output", out, "replayed  3\n")
	wantText(t, "stderr", faults, "2 deliveries queued again so far\n3 deliveries queued again so far\n")
}

func TestImport_PrintsProgress(t *testing.T) {
	looks := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if looks++; r.Method == http.MethodGet && looks > 6 {
			_, _ = io.WriteString(w, `{"id":"7","status":"done","numbers":2,"applied":2,"bad":1,"done_at":"2026-06-04T09:00:00Z"}`)
			return
		}
		_, _ = io.WriteString(w, `{"id":"7","status":"applying","numbers":2,"applied":1,"bad":1,"done_at":null}`)
	}))
	defer server.Close()
	admin(t, http.StatusOK)
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	code, out, faults := runCommand(t, "opt-outs", "add", "+14155550100", "+14155550101", "nobody")
	wantCode(t, "opt-outs add", code, 1)
	wantContains(t, "output", out, "applied  2")
	if got := strings.Count(faults, "1 of 2 numbers"); got != 1 {
		t.Errorf("progress lines = %d, want 1; stderr: %q", got, faults)
	}
	wantContains(t, "stderr", faults, "1 rows have no valid number and were not imported; 2 numbers are opted out")
}

func TestAudit_UsesTheNamedWorkspace(t *testing.T) {
	o := admin(t, http.StatusOK)
	home := t.TempDir()
	local := fmt.Sprintf(`{"admin_url":%q,"admin_token":"a-token-of-the-test","workspace_id":"demo"}`, os.Getenv("RINGFENCE_ADMIN_URL"))
	if err := os.WriteFile(filepath.Join(home, "demo.json"), []byte(local), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RINGFENCE_ADMIN_URL", "")
	t.Setenv("RINGFENCE_WORKSPACE", "")
	t.Setenv("RINGFENCE_HOME", home)
	for _, args := range [][]string{{"audit", "list"}, {"-w", "W", "audit", "list"}, {"workspaces", "show"}, {"-w", "W", "workspaces", "show"}} {
		if code, _, faults := runCommand(t, args...); code != 0 {
			t.Errorf("%v = %d %s", args, code, faults)
		}
	}
	want := []string{
		"GET /admin/v1/audit?limit=100",
		"GET /admin/v1/workspaces/W/audit?limit=100",
		"GET /admin/v1/workspaces/demo",
		"GET /admin/v1/workspaces/W",
	}
	if !slices.Equal(o.asked, want) {
		t.Errorf("asked %q, want %q", o.asked, want)
	}
}

func TestWebhooks_OperatorCommandsChangeTheSubscription(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{
			name: "pause", args: []string{"pause", "S"},
			want: `PATCH /admin/v1/workspaces/W/webhook-subscriptions/S {"status":"paused"}`,
		},
		{
			name: "resume", args: []string{"resume", "S"},
			want: `PATCH /admin/v1/workspaces/W/webhook-subscriptions/S {"status":"active"}`,
		},
		{
			name: "delete", args: []string{"delete", "S", "--yes"},
			want: `DELETE /admin/v1/workspaces/W/webhook-subscriptions/S `,
		},
		{
			name: "resend", args: []string{"resend", "S", "D"},
			want: `POST /admin/v1/workspaces/W/webhook-subscriptions/S/deliveries/D/resend `,
		},
		{
			name: "replay of a period", args: []string{"replay", "S", "--since", "2026-06-04T09:00:00Z"},
			want: `POST /admin/v1/workspaces/W/webhook-subscriptions/S/replay ` +
				`{"only_failed":false,"since":"2026-06-04T09:00:00Z"}`,
		},
		{
			name: "replay of the failed deliveries of a period",
			args: []string{"replay", "S", "--since", "2026-06-04T09:00:00Z", "--until", "2026-06-04T10:00:00Z",
				"--only-failed"},
			want: `POST /admin/v1/workspaces/W/webhook-subscriptions/S/replay ` +
				`{"only_failed":true,"since":"2026-06-04T09:00:00Z","until":"2026-06-04T10:00:00Z"}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = r.Method + " " + r.URL.Path + " " + string(body)
				_, _ = io.WriteString(w, `{"id":"S"}`)
			}))
			defer server.Close()
			t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
			t.Setenv("RINGFENCE_ADMIN_TOKEN", "a-token-of-the-test")
			code, _, faults := runCommand(t, append([]string{"-w", "W", "webhooks"}, test.args...)...)
			if code != 0 {
				t.Errorf("exit status = %d, want 0; stderr: %s", code, faults)
			}
			if got != test.want {
				t.Errorf("request = %s, want %s", got, test.want)
			}
		})
	}
}

func TestReplay_ErrorForAFailedSubscriptionNamesTheResumeCommand(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"error":{"code":"subscription_not_active","message":"The subscription is failed. Set `+
			`its status to active, then replay."}}`)
	}))
	defer server.Close()
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	t.Setenv("RINGFENCE_ADMIN_TOKEN", "a-token-of-the-test")
	for _, args := range [][]string{
		{"replay", "S", "--failed", "2026-06-04T09:00:00Z"}, {"replay", "S", "--since", "2026-06-04T09:00:00Z"},
		{"resend", "S", "D"},
	} {
		code, _, faults := runCommand(t, append([]string{"-w", "W", "webhooks"}, args...)...)
		if code != 1 {
			t.Errorf("exit status of %v = %d, want 1", args, code)
		}
		if want := "To do so: ringfence -w W webhooks resume S"; !strings.Contains(faults, want) {
			t.Errorf("stderr of %v = %q, want it to contain %q", args, faults, want)
		}
	}
}
