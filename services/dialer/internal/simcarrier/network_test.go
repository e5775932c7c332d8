package simcarrier_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/carrier/carriertest"
	"ringfence.dev/services/dialer/internal/simcarrier"
)

var binary = sync.OnceValues(func() (path string, err error) {
	dir, err := os.MkdirTemp("", "simcarrier-test")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "simcarrier")
	if out, err := exec.Command("go", "build", "-o", path, "ringfence.dev/cmd/simcarrier").CombinedOutput(); err != nil {
		return path, fmt.Errorf("build simcarrier: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

type simProcess struct {
	t          testing.TB
	addr, base string
	dir        string
	env        []string
	cmd        *exec.Cmd
}

func fresh(t testing.TB) *carriertest.Network {
	t.Helper()
	// testkit.Port reserves the port, so that no other test uses it while the carrier is stopped.
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	x := &simProcess{t: t, addr: fmt.Sprintf("127.0.0.1:%d", port), dir: t.TempDir()}
	x.base = "http://" + x.addr
	x.env = append(os.Environ(), "SIMCARRIER_ADDR="+x.addr, "SIMCARRIER_DIR="+x.dir, "SIMULATOR_TIME_SCALE=0.02")
	x.start(false)
	t.Cleanup(x.stop)
	return &carriertest.Network{
		Carrier: simcarrier.New(simcarrier.Config{URL: x.base}), StoresEvents: true,
		TalkingPhone: "+14155550101", BusyPhone: "+14155550190", StayingPhone: "+14155550199",
		RingingPhone: "+14155561101", SlowPhone: "+14155562101",
		RefusedNumber: "+14155563101", SilentPhone: "+14155564199", UndialedPhone: "+14155565101",
		NewCarrier: func() carrier.EventStream { return simcarrier.New(simcarrier.Config{URL: x.base}) },
		Dials:      x.dials, Call: x.call, Stop: x.stop, Start: x.start,
	}
}

func (x *simProcess) start(forgetful bool) {
	x.t.Helper()
	path, err := binary()
	if err != nil {
		x.t.Fatal(err)
	}
	if forgetful {
		if err := os.RemoveAll(x.dir); err != nil {
			x.t.Fatal(err)
		}
	}
	x.cmd = exec.Command(path)
	x.cmd.Env = x.env
	if err := x.cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	testkit.NoError(x.t, func() error {
		conn, err := net.Dial("tcp", x.addr)
		if err != nil {
			return fmt.Errorf("connect to the carrier: %w", err)
		}
		return conn.Close()
	})
	for _, rule := range []string{
		`{"fault":"endless","to":"+14155561"}`, `{"fault":"dead","to":"+14155562"}`, `{"fault":"refuse","to":"+14155563"}`,
		`{"fault":"hang","to":"+14155564"}`, `{"fault":"hang_undialed","to":"+14155565"}`,
	} {
		x.ask(http.MethodPost, "/faults", rule, nil)
	}
}

func (x *simProcess) stop() {
	_ = x.cmd.Process.Kill()
	_ = x.cmd.Wait()
}

func (x *simProcess) dials(callID uuid.UUID) (times int) {
	x.t.Helper()
	var page struct {
		Data []struct {
			Kind   string
			CallID uuid.UUID `json:"call_id"`
		}
	}
	x.ask(http.MethodGet, "/log?after=0", "", &page)
	for _, e := range page.Data {
		if e.Kind == "originate" && e.CallID == callID {
			times++
		}
	}
	return times
}

func (x *simProcess) call(from, to string) uuid.UUID {
	x.t.Helper()
	var call struct {
		CallID uuid.UUID `json:"call_id"`
	}
	x.ask(http.MethodPost, "/inbound", fmt.Sprintf(`{"from":%q,"to":%q}`, from, to), &call)
	return call.CallID
}

func (x *simProcess) ask(method, path, body string, into any) {
	x.t.Helper()
	req, err := http.NewRequestWithContext(x.t.Context(), method, x.base+path, bytes.NewReader([]byte(body)))
	if err != nil {
		x.t.Fatal(err)
	}
	req.Close = true // connections cannot be reused, because tests restart the carrier between requests
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		x.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		x.t.Fatalf("%s %s = %d %s", method, path, resp.StatusCode, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			x.t.Fatal(err)
		}
	}
}

func TestConformance_SimulatedCarrierPassesAllRules(t *testing.T) {
	t.Parallel()
	carriertest.Run(t, fresh)
}
