package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/sip/siptest"
)

// challengeScenario challenges every INVITE. It answers 403 to a wrong digest and 486 to the right
// digest.
var challengeScenario = scenario(``, `403 Forbidden`)

// This is a second challenge. Some trunks send it after a wrong digest.
const again = `401 Unauthorized
WWW-Authenticate: Digest realm="far", nonce="a8d2", algorithm=MD5, qop="auth"`

// These steps wait 6 s before the next response, because some trunks need this time to check a
// digest.
const slowly = trying + `<pause milliseconds="6000"/>
`

const trying = `<send><![CDATA[

SIP/2.0 100 Trying
[last_Via:]
[last_From:]
[last_To:]
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>
`

// scenario returns a sipp scenario. precedingMessage is sent before wrongDigestResponse, the
// response to a wrong digest.
func scenario(precedingMessage, wrongDigestResponse string) string {
	status, headers, _ := strings.Cut(wrongDigestResponse, "\n")
	if headers != "" {
		headers += "\n"
	}
	return `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="trunk">
<recv request="OPTIONS" optional="true" next="options"/>
<recv request="INVITE"/>
<send><![CDATA[

SIP/2.0 401 Unauthorized
[last_Via:]
[last_From:]
[last_To:];tag=[call_number]a
[last_Call-ID:]
[last_CSeq:]
WWW-Authenticate: Digest realm="far", nonce="a8d2", algorithm=MD5, qop="auth"
Content-Length: 0

]]></send>
<recv request="ACK"/>
<recv request="INVITE"><action><verifyauth assign_to="good" username="account" password="secret"/></action></recv>
<nop test="good" next="busy"/>
` + precedingMessage + `<send next="end"><![CDATA[

SIP/2.0 ` + status + `
[last_Via:]
[last_From:]
[last_To:];tag=[call_number]b
[last_Call-ID:]
[last_CSeq:]
` + headers + `Content-Length: 0

]]></send>
<label id="busy"/>
<send next="end"><![CDATA[

SIP/2.0 486 Busy Here
[last_Via:]
[last_From:]
[last_To:];tag=[call_number]b
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>
<label id="options"/>
<send><![CDATA[

SIP/2.0 200 OK
[last_Via:]
[last_From:]
[last_To:];tag=[call_number]o
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>
<label id="end"/>
</scenario>
`
}

func startTrunk(t *testing.T, scenario string, more ...string) (port int) {
	t.Helper()
	return startTrunkAt(t, "127.0.0.1", scenario, more...)
}

func startTrunkAt(t *testing.T, address, scenario string, more ...string) (port int) {
	t.Helper()
	_, port = startSipp(t, address, scenario, more...)
	return port
}

// startSipp returns after sipp has started to listen.
func startSipp(t *testing.T, address, scenario string, more ...string) (peer *peertest.Program, port int) {
	t.Helper()
	peertest.Installed(t, "sipp")
	dir := t.TempDir()
	file := filepath.Join(dir, "trunk.xml")
	if err := os.WriteFile(file, []byte(scenario), 0o600); err != nil {
		t.Fatal(err)
	}
	port = peertest.Port(t)
	args := []string{
		"-sf", file, "-i", address, "-p", strconv.Itoa(port), "-t", "u1", "-nostdin",
		"-mp", strconv.Itoa(peertest.Port(t)), "-trace_err", "-error_file", "/dev/stderr",
	}
	peer = peertest.Start(t, dir, "sipp", append(args, more...)...)
	network := "udp"
	if strings.Contains(address, ":") {
		network = "udp6"
	}
	if err := peer.Listens(network, port); err != nil {
		t.Fatal(err)
	}
	return peer, port
}

func (r *rig) addTrunk(p *process, port int, more string) (path string) {
	r.t.Helper()
	url := "http://" + p.addr + "/admin/v1/trunks"
	status, response := r.asOperator("POST", url, fmt.Sprintf(`{"name":"far","host":"127.0.0.1","port":%d%s}`, port, more))
	if status != 201 {
		r.t.Fatalf("POST trunk = %d %v, want 201", status, response)
	}
	return url + "/" + response["id"].(string)
}

func (r *rig) inQueue(id uuid.UUID) (state string, fences int) {
	r.t.Helper()
	err := r.pool.QueryRow(r.t.Context(), `
		SELECT state, (SELECT count(*) FROM fences f WHERE f.call_request_id = q.call_request_id)
		FROM dial_queue q WHERE call_request_id = $1`, id).Scan(&state, &fences)
	if err != nil {
		r.t.Fatal(err)
	}
	return state, fences
}

func (r *rig) patchTrunk(path, change string) {
	r.t.Helper()
	status, response := r.asOperator("PATCH", path, change)
	if status != 200 {
		r.t.Fatalf("PATCH trunk = %d %v, want 200", status, response)
	}
}

func (r *rig) wantBusy(id uuid.UUID) *eventv1.Call {
	r.t.Helper()
	end := last(r.ends(id)).GetCall()
	if got, want := end.GetHangupCause(), string(callstate.UserBusy); got != want {
		r.t.Errorf("hangup cause = %q, want %q", got, want)
	}
	return end
}

func TestTrunk_RequestsStayQueuedIfThePasswordIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, scenario string }{
		{name: "401", scenario: scenario("", again)},
		{name: "401 with a Q.850 cause", scenario: scenario("", again+"\nReason: Q.850;cause=21")},
		{name: "401 after 6 s", scenario: scenario(slowly, again)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "0")
			port, private := startTrunk(t, tt.scenario), freeAddr(t)
			p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "CIRCUIT_REST=1h", "PRIVATE_ADDR="+private)
			path := r.addTrunk(p, port, `,"username":"account","password":"wrong","caller_ids":["+14155550100"]`)
			first := r.request("+14155551301")
			r.awaitReleased(first)
			await(t, "the log contains the refusal", func() bool {
				return strings.Contains(p.output(), "SIP trunk circuit breaker opened")
			})
			_, opened, _ := strings.Cut(p.output(), "SIP trunk circuit breaker opened")
			opened, _, _ = strings.Cut(opened, "\n")
			for _, want := range []string{"trunk=far", "401 Unauthorized"} {
				if !strings.Contains(opened, want) {
					t.Errorf("log of the refusal = %q, want it to contain %q", opened, want)
				}
			}
			metric := `ringfence_dialer_sip_refusals_total{sip_trunk="far",status="401"} 1` + "\n"
			if metrics := body(t, "http://"+private+"/metrics"); !strings.Contains(metrics, metric) {
				t.Errorf("metrics lack %q", metric)
			}
			second := r.request("+14155551302")
			r.patchTrunk(path, `{"password":"secret"}`)
			for id, want := range map[uuid.UUID]int{first: 2, second: 1} {
				end := r.wantBusy(id)
				if got, want := end.GetFrom(), "+14155550100"; got != want {
					t.Errorf("from = %q, want %q, the caller id of the trunk", got, want)
				}
				if _, got := r.inQueue(id); got != want {
					t.Errorf("fences = %d, want %d", got, want)
				}
			}
		})
	}
}

func (r *rig) awaitReleased(id uuid.UUID) {
	r.t.Helper()
	await(r.t, "the request is queued again", func() bool {
		if void, _ := r.released(id); void == 0 {
			return false
		}
		state, _ := r.inQueue(id)
		return state == "queued"
	})
}

// A 403 can concern only the callee's number. So the circuit opens only after the trunk refused two
// numbers.
func TestTrunk_RequestsStayQueuedIfTheAccountIsForbidden(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, scenario string }{
		{name: "403", scenario: challengeScenario},
		{name: "403 after 6 s", scenario: scenario(slowly, `403 Forbidden`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "0")
			port, private := startTrunk(t, tt.scenario), freeAddr(t)
			p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "CIRCUIT_REST=1h", "PRIVATE_ADDR="+private)
			path := r.addTrunk(p, port, `,"username":"account","password":"wrong"`)
			open := func() bool {
				return strings.Contains(body(t, "http://"+private+"/metrics"),
					`ringfence_dialer_circuit_state{state="open",trunk="far"} 1`)
			}
			first := r.request("+14155551306")
			r.awaitReleased(first)
			if open() {
				t.Error("the circuit is open after one number was refused, want closed")
			}
			second := r.request("+14155551307")
			r.awaitReleased(second)
			await(t, "the circuit of the trunk is open", open)
			r.patchTrunk(path, `{"password":"secret"}`)
			r.wantBusy(first)
			r.wantBusy(second)
		})
	}
}

// The trunk has never accepted a call. So the error names the operator's SIP account and not the
// callee.
func TestTrunk_ForbiddenAccountIsReportedAsTheOperatorsFault(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, scenario string }{
		{name: "403", scenario: challengeScenario},
		{name: "403 after 100", scenario: scenario(trying, `403 Forbidden`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "0")
			port := startTrunk(t, tt.scenario)
			p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
			r.addTrunk(p, port, `,"username":"account","password":"wrong"`)
			for range 2 {
				id := r.request("+14155551309")
				await(t, "the request ended", func() bool {
					const soon = "UPDATE dial_queue SET look_at = now() WHERE state = 'queued' AND claimed_by IS NULL"
					if _, err := r.pool.Exec(t.Context(), soon); err != nil {
						t.Fatal(err)
					}
					return slices.ContainsFunc(r.factsOf(id.String()), func(f eventRecord) bool { return f.name == "ended" })
				})
				end := last(r.ends(id)).GetCall()
				if got, want := end.GetHangupCause(), string(callstate.CallRejected); got != want {
					t.Errorf("hangup cause = %q, want %q", got, want)
				}
				if got, want := end.GetErrorCode(), callstate.CodeProviderRejected; got != want {
					t.Errorf("error code = %q, want %q", got, want)
				}
				want := "The operator's trunk did not accept the call from the operator's account; the callee had no part " +
					"in it. Ask your operator to check the trunk, then ask for the call again."
				if got := end.GetErrorDetail(); got != want {
					t.Errorf("error detail = %q, want %q", got, want)
				}
			}
		})
	}
}

// released returns the number of void fences of a call request, and the number of all its fences. A
// fence becomes void when its call request is queued again after the attempt.
func (r *rig) released(id uuid.UUID) (void, fences int) {
	r.t.Helper()
	err := r.pool.QueryRow(r.t.Context(), `SELECT count(*) FILTER (WHERE c.status = 'void'), count(f.call_id)
		FROM fences f LEFT JOIN calls c USING (call_id) WHERE f.call_request_id = $1`, id).Scan(&void, &fences)
	if err != nil {
		r.t.Fatal(err)
	}
	return void, fences
}

const silent = `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="trunk">
<recv request="OPTIONS" optional="true" next="options"/>
<recv request="INVITE" next="end"/>
` + optionsAndEnd

// The error must name the carrier, not the callee, and must not say that the state of the call is
// unknown.
func TestTrunk_RefusedRequestFailsWithProviderUnavailable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, scenario string
		cause          callstate.Cause
	}{
		{name: "no response", scenario: silent, cause: callstate.RecoveryOnTimerExpire},
		{name: "503", scenario: refusing("503 Service Unavailable"), cause: callstate.NormalTemporaryFailure},
		{name: "502", scenario: refusing("502 Bad Gateway"), cause: callstate.NetworkOutOfOrder},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "0")
			port := startTrunk(t, tt.scenario)
			p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
			r.addTrunk(p, port, "")
			end := last(r.ends(r.request("+14155551316"))).GetCall()
			if got, want := end.GetHangupCause(), string(tt.cause); got != want {
				t.Errorf("hangup cause = %q, want %q", got, want)
			}
			if got, want := end.GetErrorCode(), callstate.CodeProviderUnavailable; got != want {
				t.Errorf("error code = %q, want %q", got, want)
			}
		})
	}
}

func TestTrunk_RequestsStayQueuedIfTheTrunkDoesNotRespond(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
	path := r.addTrunk(p, silent.LocalAddr().(*net.UDPAddr).Port, "")
	id := r.request("+14155551303")
	await(t, "the request is in the queue of the dialer", func() bool {
		var known bool
		const query = "SELECT EXISTS (SELECT 1 FROM dial_queue WHERE call_request_id = $1)"
		return r.pool.QueryRow(t.Context(), query, id).Scan(&known) == nil && known
	})
	// The dialer repeats OPTIONS for seconds. If it dialed, an INVITE would arrive within
	// milliseconds.
	for range 5 {
		packet := make([]byte, 1500)
		n, _, err := silent.ReadFrom(packet)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := strings.Cut(string(packet[:n]), " "); got != "OPTIONS" {
			t.Errorf("request to the silent trunk = %q, want %q", got, "OPTIONS")
		}
	}
	state, fences := r.inQueue(id)
	if want := "queued"; state != want {
		t.Errorf("state = %q, want %q", state, want)
	}
	if fences != 0 {
		t.Errorf("fences = %d, want 0", fences)
	}
	port := startTrunk(t, challengeScenario)
	r.patchTrunk(path, fmt.Sprintf(`{"port":%d,"username":"account","password":"secret"}`, port))
	r.wantBusy(id)
	if _, got := r.inQueue(id); got != 1 {
		t.Errorf("fences = %d, want 1", got)
	}
}

func TestTrunk_RequestsStayQueuedIfThereIsNoTrunk(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	r, private := newRig(t, "0"), freeAddr(t)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "PRIVATE_ADDR="+private)
	id := r.request("+14155551308")
	trunks := func(n int) func() bool {
		return func() bool {
			return strings.Contains(body(t, "http://"+private+"/metrics"),
				fmt.Sprintf("ringfence_dialer_sip_trunks_active %d\n", n))
		}
	}
	await(t, "the metric shows that there is no trunk", trunks(0))
	await(t, "the log shows that there is no trunk", func() bool {
		return strings.Contains(p.output(), "no SIP trunk is active: calls stay queued; add one with POST /admin/v1/trunks")
	})
	state, fences := r.inQueue(id)
	if want := "queued"; state != want {
		t.Errorf("state = %q, want %q", state, want)
	}
	if fences != 0 {
		t.Errorf("fences = %d, want 0", fences)
	}
	r.addTrunk(p, startTrunk(t, challengeScenario), `,"username":"account","password":"secret"`)
	r.wantBusy(id)
	await(t, "the metric shows the trunk", trunks(1))
}

// switchedPort forwards connections to an address while open is true. Otherwise it closes every
// connection.
type switchedPort struct {
	address string
	open    atomic.Bool
	refused atomic.Int64
}

func startSwitched(t *testing.T, to string) *switchedPort {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	g := &switchedPort{address: listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if !g.open.Load() {
				g.refused.Add(1)
				_ = conn.Close()
				continue
			}
			go forward(conn, to)
		}
	}()
	return g
}

func forward(conn net.Conn, to string) {
	defer func() { _ = conn.Close() }()
	far, err := net.Dial("tcp4", to)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	go func() { _, _ = io.Copy(far, conn) }()
	_, _ = io.Copy(conn, far)
}

func TestAgent_RequestsStayQueuedIfTheModelIsUnreachable(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	model := modeltest.NewRealtime(modeltest.RealtimeOptions{Key: "the-operators"})
	t.Cleanup(model.Close)
	host, path, _ := strings.Cut(strings.TrimPrefix(model.URL, "ws://"), "/")
	between := startSwitched(t, host)
	port, private := startTrunk(t, challengeScenario), freeAddr(t)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "REALTIME_URL=ws://"+between.address+"/"+path,
		"REALTIME_KEY=the-operators", "CIRCUIT_FAILURES=2", "PRIVATE_ADDR="+private)
	r.addTrunk(p, port, `,"username":"account","password":"secret"`)
	r.publish(kafka.Agents, r.agent, &eventv1.AgentEvent{
		AgentId: r.agent.String(), WorkspaceId: r.workspace.String(), Version: time.Now().UnixNano(),
		Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{
			Name: "Ida", FromE164: dialqueue.DefaultFrom, MaxCallSeconds: 60,
			SettingsJson: []byte(`{"kind":"openai_realtime","instructions":"Be brief."}`),
		}},
	})
	await(t, "the agent's settings are stored", func() bool {
		var kind string
		err := r.pool.QueryRow(t.Context(), `SELECT coalesce(settings->>'kind', '') FROM agents WHERE agent_id = $1`,
			r.agent).Scan(&kind)
		return err == nil && kind == "openai_realtime"
	})
	id := r.request("+14155551304")
	await(t, "the circuit of the model is open", func() bool {
		metrics := body(t, "http://"+private+"/metrics")
		return strings.Contains(metrics, `ringfence_dialer_agent_circuits_open{kind="openai_realtime",owner="operator"} 1`)
	})
	await(t, "after every attempt, the call request is queued again", func() bool {
		void, fences := r.released(id)
		return void == fences
	})
	between.open.Store(true)
	r.wantBusy(id)
	metrics := body(t, "http://"+private+"/metrics")
	want := `ringfence_dialer_sip_invites_total{result="answered",sip_trunk="far"} 1`
	if !strings.Contains(metrics, want) {
		t.Errorf("metrics lack %s: more than one INVITE was sent", want)
	}
}

// The dialer crashes before it queues the call request again. The recovery job of the next dialer
// then ends the request.
func TestTrunk_RequestIsDialedOnceIfTheDialerCrashesBeforeTheRequeue(t *testing.T) {
	t.Parallel()
	r, arm := newRig(t, "0"), filepath.Join(t.TempDir(), "armed")
	env := []string{"CARRIER=sip", "SIP_UDP_ADDR=" + freeAddr(t), "CRASH_FILE=" + arm}
	p := r.dialer(env...)
	dials := r.trunkThat(p, "forbids", 1, func(c *siptest.Call) { c.Respond(403, "") })
	if err := os.WriteFile(arm, []byte("dialer over sip: before release"), 0o600); err != nil {
		t.Fatal(err)
	}
	const number = "+14155551305"
	id := r.request(number)
	<-p.done
	r.dialer(env...)
	end := last(r.ends(id)).GetCall()
	if got, want := end.GetErrorCode(), callstate.CodeDialStateUnknown; got != want {
		t.Errorf("error code = %q, want %q", got, want)
	}
	if got := dials(number); got != 1 {
		t.Errorf("INVITEs = %d, want 1", got)
	}
}
