package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit/peertest"
)

func (r *rig) operatorRequest(url string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	caller := serviceauth.Caller{WorkspaceID: r.workspace, Access: serviceauth.Write, Operator: "ops"}
	token, err := r.gateway.SignCaller(serviceName, caller)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set(serviceauth.CallerHeader, token)
	return req
}

func (r *rig) fetch(url string) (status int, content string) {
	r.t.Helper()
	resp, err := http.DefaultClient.Do(r.operatorRequest(url))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(read)
}

// wantInTrace checks the trace. A text whose value is true must be in the trace, and a text whose
// value is false must not.
func wantInTrace(t *testing.T, trace string, texts map[string]bool) {
	t.Helper()
	for text, want := range texts {
		if got := strings.Contains(trace, text); got != want {
			t.Errorf("trace contains %q = %t, want %t", text, got, want)
		}
	}
}

// findSecret returns the text that the first group of the pattern matches in the messages that sipp
// received.
func findSecret(t *testing.T, received, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(received)
	if found == nil {
		t.Fatalf("sipp received nothing like %s", pattern)
	}
	return found[1]
}

func TestTrace_ContainsTheCallWithoutItsDigestCredentials(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	port, received := startLogging(t, challengeScenario)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
	path := r.addTrunk(p, port, `,"username":"account","password":"secret"`)
	if status, content := r.fetch(path + "/trace"); status != http.StatusConflict {
		t.Errorf("GET trace before it is set = %d %s, want 409", status, content)
	}
	if status, response := r.asOperator("PATCH", path, `{"trace":true}`); status != http.StatusOK {
		t.Fatalf("PATCH trunk = %d %v, want 200", status, response)
	}
	await(t, "OPTIONS in the trace", func() bool {
		_, trace := r.fetch(path + "/trace")
		return strings.Contains(trace, "OPTIONS sip:") && strings.Contains(trace, "SIP/2.0 200 OK")
	})
	id := r.request("+14155551321")
	r.ends(id)
	callID := r.attempts(p, id)[0].SIPCallID
	status, trace := r.fetch(path + "/trace?format=text&sip_call_id=" + callID)
	if status != http.StatusOK {
		t.Fatalf("GET trace = %d %s, want 200", status, trace)
	}
	wantInTrace(t, trace, map[string]bool{
		"INVITE sip:+14155551321@127.0.0.1": true, "SIP/2.0 401 Unauthorized": true, "SIP/2.0 486 Busy Here": true,
		"ACK sip:": true, `response="xxxx`: true, "OPTIONS sip:": false,
		fmt.Sprintf(" -> 127.0.0.1:%d at ", port): true, fmt.Sprintf(" received UDP 127.0.0.1:%d -> ", port): true,
		findSecret(t, received(), `response="([0-9a-f]+)"`): false,
	})
	status, pcap := r.fetch(path + "/trace?format=pcap&sip_call_id=" + callID)
	if status != http.StatusOK {
		t.Fatalf("GET trace as pcap = %d, want 200", status)
	}
	wantInTrace(t, pcap, map[string]bool{
		"\xd4\xc3\xb2\xa1": true, "INVITE sip:+14155551321@127.0.0.1": true, "SIP/2.0 486 Busy Here\r\n": true,
		findSecret(t, received(), `response="([0-9a-f]+)"`): false,
	})
	if status, response := r.asOperator("PATCH", path, `{"trace":null}`); status != http.StatusOK {
		t.Fatalf("PATCH trunk = %d %v, want 200", status, response)
	}
	if status, content := r.fetch(path + "/trace"); status != http.StatusConflict {
		t.Errorf("GET trace after it ended = %d %s, want 409", status, content)
	}
}

func TestTrace_OverTCPHasNoSRTPKeys(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	r := newRig(t, "0")
	dir, port := t.TempDir(), peertest.Port(t)
	file, messages := filepath.Join(dir, "trunk.xml"), filepath.Join(dir, "messages")
	if err := os.WriteFile(file, []byte(refusing("486 Busy Here")), 0o600); err != nil {
		t.Fatal(err)
	}
	peer := peertest.Start(t, dir, "sipp", "-sf", file, "-i", "127.0.0.1", "-p", strconv.Itoa(port), "-t", "t1",
		"-nostdin", "-mp", strconv.Itoa(peertest.Port(t)), "-trace_msg", "-message_file", messages)
	if err := peer.Listens("tcp", port); err != nil {
		t.Fatal(err)
	}
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "SIP_TCP_ADDR="+freeAddr(t))
	path := r.addTrunk(p, port, `,"transport":"tcp","srtp":"optional","trace":true`)
	await(t, "OPTIONS in the trace", func() bool {
		// A PATCH of the trunk causes the dialer to send OPTIONS again.
		r.asOperator("PATCH", path, `{"trace":true}`)
		_, trace := r.fetch(path + "/trace")
		return strings.Contains(trace, "OPTIONS sip:") && strings.Contains(trace, "SIP/2.0 200 OK")
	})
	id := r.request("+14155551322")
	r.ends(id)
	_, trace := r.fetch(path + "/trace?sip_call_id=" + r.attempts(p, id)[0].SIPCallID)
	received, err := os.ReadFile(messages)
	if err != nil {
		t.Fatal(err)
	}
	wantInTrace(t, trace, map[string]bool{
		" sent TCP 127.0.0.1:": true, fmt.Sprintf(" received TCP 127.0.0.1:%d -> ", port): true,
		"INVITE sip:+14155551322@127.0.0.1": true, "SIP/2.0 486 Busy Here": true, "inline:xxxx": true,
		findSecret(t, string(received), `inline:([^\s|]+)`): false,
	})
}

func TestTrace_ContainsTheMessagesOfAllReplicas(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	port, _ := startLogging(t, refusing("486 Busy Here"))
	addresses := []string{freeAddr(t), freeAddr(t)}
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+addresses[0])
	r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+addresses[1])
	path := r.addTrunk(p, port, `,"trace":true`)
	await(t, "the OPTIONS of both replicas in the trace", func() bool {
		// A PATCH of the trunk causes the dialer to send OPTIONS again.
		r.asOperator("PATCH", path, `{"trace":true}`)
		status, trace := r.fetch(path + "/trace?format=pcap")
		return status == http.StatusOK && strings.Contains(trace, "Via: SIP/2.0/UDP "+addresses[0]) &&
			strings.Contains(trace, "Via: SIP/2.0/UDP "+addresses[1])
	})
}

// SIGKILL ends the dialer while it waits for the messages of a halted replica. So the dialer cannot
// delete the rows of the trace request and of its answer.
func TestTrace_RowsOfAKilledDialerAreDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	port := startTrunk(t, refusing("486 Busy Here"))
	env := []string{"CARRIER=sip", "INSTANCE_LEASE=1m", "CLAIM_LEASE=2m"}
	start := func() *process { return r.dialer(append(slices.Clone(env), "SIP_UDP_ADDR="+freeAddr(t))...) }
	first, second := start(), start()
	path := r.addTrunk(first, port, `,"trace":true`)
	r.awaitTrunkOfReplicas(path, 2)
	rows := func(table string) (n int) {
		if err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	pause(t, second)
	req := r.operatorRequest(path + "/trace")
	go func() {
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	await(t, "the first dialer has stored its messages", func() bool { return rows("sip_trace_answers") == 1 })
	first.kill()
	if got := rows("sip_trace_requests"); got != 1 {
		t.Errorf("trace requests after the kill = %d, want 1", got)
	}
	const age = "UPDATE sip_trace_requests SET requested_at = requested_at - interval '2 minutes'"
	if _, err := r.pool.Exec(t.Context(), age); err != nil {
		t.Fatal(err)
	}
	start()
	await(t, "the next dialer deletes the request and the answer", func() bool {
		return rows("sip_trace_requests") == 0 && rows("sip_trace_answers") == 0
	})
}
