package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The names and references of the objects in the demo workspace. If a start was killed, the next
// start finds the existing objects by these values and creates no duplicates.
const (
	demoName      = "Demo"
	demoAgent     = "Ada"
	demoNumber    = "+15005550100"
	demoCredit    = "1000"
	demoReference = "demo-credit"
)

// operator is a client of the admin API.
type operator struct {
	base, token string
	client      *http.Client
}

func (s *stack) operator() operator {
	return operator{
		base: s.adminURL(), token: s.state.AdminToken,
		client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{Proxy: nil}},
	}
}

// demoWorkspace creates the demo workspace and its objects, except those that an earlier run
// created. After each step it saves the id or key of the new object.
func (s *stack) demoWorkspace(ctx context.Context) (Demo, error) {
	op := s.operator()
	defer op.client.CloseIdleConnections()
	demo := &s.state.Demo
	if demo.WorkspaceID != "" {
		status, _, err := op.do(ctx, http.MethodGet, "/admin/v1/workspaces/"+demo.WorkspaceID, nil)
		if err != nil {
			return *demo, err
		}
		// the database is new: it does not contain the workspace of the last start
		if status == http.StatusNotFound {
			*demo = Demo{}
		}
	}
	if demo.WorkspaceID == "" {
		s.Console.Say("creating the demo workspace")
	}
	path := func() string { return "/admin/v1/workspaces/" + demo.WorkspaceID }
	for _, step := range []struct {
		made *string
		make func() (string, error)
	}{
		{&demo.WorkspaceID, func() (string, error) {
			return op.ensureItem(ctx, "/admin/v1/workspaces", "name", demoName, map[string]any{
				"plan": "growth", "currency": "USD",
				"calling_policy": map[string]any{"window": map[string]any{"start": "00:00", "end": "24:00"}, "timezone": "recipient"},
			})
		}},
		{&demo.AgentID, func() (string, error) {
			if err := op.topUp(ctx, path()); err != nil {
				return "", err
			}
			return op.ensureItem(ctx, path()+"/agents", "name", demoAgent, nil)
		}},
		{&demo.WriteKey, func() (string, error) {
			// This step also adds the demo agent's number, for which demo.json has no field. With
			// SIP trunks it does not add the number, because a real call must not show that number
			// as its caller.
			if os.Getenv("CARRIER") == "sip" {
				return op.key(ctx, path(), "write")
			}
			if _, err := op.ensureItem(ctx, path()+"/numbers", "phone_e164", demoNumber,
				map[string]any{"agent_id": demo.AgentID}); err != nil {
				return "", err
			}
			return op.key(ctx, path(), "write")
		}},
		{&demo.ReadKey, func() (string, error) { return op.key(ctx, path(), "read") }},
	} {
		if *step.made != "" {
			continue
		}
		value, err := step.make()
		if err != nil {
			return *demo, fmt.Errorf("create demo workspace: %w", err)
		}
		*step.made = value
		if err := s.state.Save(); err != nil {
			return *demo, err
		}
	}
	return *demo, nil
}

// removeInventedNumber deletes the caller number that an earlier run with the simulator gave to the
// demo agent. It must run before a dialer with SIP trunks starts, because a real call must not show
// that number.
func removeInventedNumber(ctx context.Context, databaseURL string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("remove the invented number of the demo agent: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, "SELECT to_regclass('dialer.numbers') IS NOT NULL").Scan(&exists)
	if err == nil && exists {
		_, err = conn.Exec(ctx, "DELETE FROM dialer.numbers WHERE phone_e164 = $1", demoNumber)
	}
	if err != nil {
		return fmt.Errorf("remove the invented number of the demo agent: %w", err)
	}
	return nil
}

// ensureItem returns the id of the item whose field has the given value, and creates the item if
// none exists. A POST that returned 503 can have stored the item, so ensureItem searches again
// before it repeats the POST.
func (op operator) ensureItem(
	ctx context.Context, collection, field, value string, rest map[string]any,
) (id string, err error) {
	body := map[string]any{field: value}
	maps.Copy(body, rest)
	for try := 1; ; try++ {
		if id, err = op.findID(ctx, collection, field, value); err != nil || id != "" {
			return id, err
		}
		status, answer, err := op.send(ctx, http.MethodPost, collection, body, 1)
		if err == nil && status == http.StatusCreated {
			var made struct {
				ID string `json:"id"`
			}
			err := json.Unmarshal(answer, &made)
			return made.ID, err
		}
		if err == nil && (status != http.StatusServiceUnavailable || try == maxTries) {
			err = fmt.Errorf("POST %s: %d %s", collection, status, bytes.TrimSpace(answer))
			return "", err
		}
		if err != nil && try == maxTries {
			return "", err
		}
		if err := pause(ctx); err != nil {
			return "", err
		}
	}
}

// findID returns the id of the item whose field has the given value, or "" if there is none.
func (op operator) findID(ctx context.Context, collection, field, value string) (id string, err error) {
	after := ""
	for {
		var page struct {
			Data    []map[string]any `json:"data"`
			HasMore bool             `json:"has_more"`
		}
		if err := op.sendInto(ctx, http.MethodGet, collection+"?limit=100"+after, nil, &page, http.StatusOK); err != nil {
			return "", err
		}
		for _, item := range page.Data {
			if item[field] == value {
				return fmt.Sprint(item["id"]), nil
			}
		}
		if !page.HasMore || len(page.Data) == 0 {
			return "", nil
		}
		after = "&starting_after=" + fmt.Sprint(page.Data[len(page.Data)-1]["id"])
	}
}

func (op operator) topUp(ctx context.Context, workspace string) error {
	return op.sendInto(ctx, http.MethodPost, workspace+"/wallet/transactions",
		map[string]any{"type": "top_up", "amount": demoCredit, "reference": demoReference}, nil, http.StatusCreated, http.StatusOK)
}

func (op operator) key(ctx context.Context, workspace, access string) (string, error) {
	var made struct {
		Key string `json:"key"`
	}
	err := op.sendInto(ctx, http.MethodPost, workspace+"/api-keys",
		map[string]any{"name": "demo " + access, "access": access}, &made, http.StatusCreated)
	return made.Key, err
}

// sendInto sends a request and decodes the response into result. It returns an error if the
// response has none of the statuses in want.
func (op operator) sendInto(ctx context.Context, method, path string, body, result any, want ...int) error {
	status, answer, err := op.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	if !slices.Contains(want, status) {
		return fmt.Errorf("%s %s: %d %s", method, path, status, bytes.TrimSpace(answer))
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(answer, result); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// unknownAgent is the part of an error response that contains the code invalid_agent. The dialer
// returns this error until it has received the event of a new agent.
const unknownAgent = `"code":"invalid_agent"`

// maxTries limits the attempts of one request. A request is repeated while the gateway does not
// respond or responds with 503, because a service can be restarting. retryPause is the pause
// between two attempts.
const (
	maxTries   = 20
	retryPause = 250 * time.Millisecond
)

func (op operator) do(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	return op.send(ctx, method, path, body, maxTries)
}

// send repeats the request up to maxTries times while the gateway does not respond or responds with
// 503.
func (op operator) send(
	ctx context.Context, method, path string, body any, maxTries int,
) (status int, answer []byte, err error) {
	payload, err := json.Marshal(body)
	if err != nil {
		return 0, nil, fmt.Errorf("render body: %w", err)
	}
	for try := 1; ; try++ {
		status, answer, err = op.once(ctx, method, path, payload)
		most := 0
		switch {
		case err != nil || status == http.StatusServiceUnavailable:
			most = maxTries
		case bytes.Contains(answer, []byte(unknownAgent)):
			// The dialer receives a new agent with a delay.
			most = int(readyTimeout / retryPause)
		}
		if try >= most || ctx.Err() != nil {
			return status, answer, err
		}
		if err := pause(ctx); err != nil {
			return 0, nil, err
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(retryPause):
		return nil
	}
}

func (op operator) once(ctx context.Context, method, path string, payload []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, op.base+path, bytes.NewReader(payload))
	if err != nil {
		return 0, nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+op.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := op.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, answer, err
}

// demoJSON is the structure of .ringfence/demo.json (cmd/ringfence-local/README.md).
type demoJSON struct {
	BaseURL     string `json:"base_url"`
	AdminURL    string `json:"admin_url"`
	AdminToken  string `json:"admin_token"`
	SimURL      string `json:"sim_url"`
	ConsoleURL  string `json:"console_url"`
	ConsoleAPI  string `json:"console_api_url"`
	WorkspaceID string `json:"workspace_id"`
	AgentID     string `json:"agent_id"`
	WriteKey    string `json:"write_key"`
	ReadKey     string `json:"read_key"`
}

func (s *stack) demoFile() string { return s.Home.Path("demo.json") }
func (s *stack) baseURL() string  { return "http://" + loopback(basePort()) }
func (s *stack) adminURL() string { return "http://" + loopback(adminPort()) }
func (s *stack) simURL() string   { return "http://" + loopback(s.state.Ports[carrierName]) }

// writeDemo writes demo.json. Other programs read the file to detect that the stack is ready.
func (s *stack) writeDemo(demo Demo) error {
	data, err := json.MarshalIndent(demoJSON{
		BaseURL: s.baseURL(), AdminURL: s.adminURL(), AdminToken: s.state.AdminToken, SimURL: s.simURL(),
		ConsoleURL: s.consoleURL(), ConsoleAPI: s.consoleAPI(),
		WorkspaceID: demo.WorkspaceID, AgentID: demo.AgentID, WriteKey: demo.WriteKey, ReadKey: demo.ReadKey,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("render demo.json: %w", err)
	}
	return WriteFile(s.demoFile(), append(data, '\n'), 0o600)
}

func (s *stack) printFirstCall(ctx context.Context, demo Demo, took time.Duration) {
	file := s.demoFile()
	if here, err := os.Getwd(); err == nil {
		if near, err := filepath.Rel(here, file); err == nil && !strings.HasPrefix(near, "..") {
			file = near
		}
	}
	if os.Getenv("CARRIER") == "sip" {
		s.Console.Say(sipGreeting, took.Seconds(), s.sipAddresses(ctx), s.baseURL(), demo.WriteKey, demo.AgentID, file,
			s.baseURL())
		return
	}
	s.Console.Say(`
Ringfence is ready (%.1f s). Place the first call:

  curl -s %s/v1/calls \
    -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' \
    -d '{"agent_id":"%s","to":"+14155550101"}'

Read the call:

  curl -s %s/v1/calls -H 'Authorization: Bearer %s'

Or let `+"`make demo`"+` do both in another terminal and receive the signed webhook. %s has all addresses and keys.
The API reference is at %[5]s/docs, the documentation at %[5]s/docs/guides.
Log lines follow. LOG_LEVEL=info also shows every request. Ctrl-C stops; the next start continues with this data.
`, took.Seconds(), s.baseURL(), demo.WriteKey, demo.AgentID, s.baseURL(), demo.ReadKey, file)
}

// sipProcess is the part of the response of GET /admin/v1/dialer that describes the SIP address of
// a dialer process.
type sipProcess struct {
	SIP *struct{ UDP, TCP, TLS, Advertised, RTP string }
}

func (p sipProcess) String() string {
	listens := ""
	for _, one := range [][2]string{{"UDP", p.SIP.UDP}, {"TCP", p.SIP.TCP}, {"TLS", p.SIP.TLS}} {
		if one[1] != "" {
			listens += " " + one[0] + " " + one[1]
		}
	}
	return fmt.Sprintf("SIP:%s. Trunks reach it at %s. Audio: %s.", listens, p.SIP.Advertised, p.SIP.RTP)
}

// sipAddresses returns a line for each dialer process that has reported its SIP address.
func (s *stack) sipAddresses(ctx context.Context) string {
	op := s.operator()
	defer op.client.CloseIdleConnections()
	var dialer struct{ Replicas []sipProcess }
	if err := op.sendInto(ctx, http.MethodGet, "/admin/v1/dialer", nil, &dialer, http.StatusOK); err != nil {
		return "The SIP addresses are in the log of the dialer: " + err.Error()
	}
	var lines []string
	for _, one := range dialer.Replicas {
		if one.SIP != nil {
			lines = append(lines, one.String())
		}
	}
	return strings.Join(lines, "\n")
}

// sipGreeting is printed if calls use SIP trunks.
const sipGreeting = `
Ringfence is ready (%.1f s). Calls go over SIP trunks (CARRIER=sip) and stay queued until a trunk can take them.
%s
List the trunks, or add one and test it without a call:

  ringfence trunks list
  ringfence trunks add --help
  ringfence trunks check --help

Call your own phone:

  curl -s %s/v1/calls \
    -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' \
    -d '{"agent_id":"%s","to":"+<your number>"}'

Everything else is in %s. The API reference is at %s/docs.
LOG_LEVEL=info shows every request. Ctrl-C stops; the next start continues here.
`
