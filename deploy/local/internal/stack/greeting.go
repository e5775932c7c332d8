package stack

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ringfence.dev/deploy/local/internal/state"
)

// demoJSON is .ringfence/demo.json (contract.md §8).
type demoJSON struct {
	BaseURL     string `json:"base_url"`
	AdminURL    string `json:"admin_url"`
	AdminToken  string `json:"admin_token"`
	SimURL      string `json:"sim_url"`
	WorkspaceID string `json:"workspace_id"`
	AgentID     string `json:"agent_id"`
	WriteKey    string `json:"write_key"`
	ReadKey     string `json:"read_key"`
}

func (s *stack) demoFile() string { return s.Home.Path("demo.json") }
func (s *stack) baseURL() string  { return "http://" + loopback(basePort()) }
func (s *stack) adminURL() string { return "http://" + loopback(adminPort()) }
func (s *stack) simURL() string   { return "http://" + loopback(s.state.Ports[carrier]) }

// writeDemo tells other programs that everything is ready and where.
func (s *stack) writeDemo(demo state.Demo) error {
	data, err := json.MarshalIndent(demoJSON{
		BaseURL: s.baseURL(), AdminURL: s.adminURL(), AdminToken: s.state.AdminToken, SimURL: s.simURL(),
		WorkspaceID: demo.WorkspaceID, AgentID: demo.AgentID, WriteKey: demo.WriteKey, ReadKey: demo.ReadKey,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("render demo.json: %w", err)
	}
	return state.WriteFile(s.demoFile(), append(data, '\n'), 0o600)
}

// greet shows how to place the first call, ready to be copied.
func (s *stack) greet(demo state.Demo, took time.Duration) {
	file := s.demoFile()
	if here, err := os.Getwd(); err == nil {
		if near, err := filepath.Rel(here, file); err == nil && !strings.HasPrefix(near, "..") {
			file = near
		}
	}
	s.Console.Say(`
Ringfence is ready (%.1f s). Place the first call:

  curl -s %s/v1/calls \
    -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' \
    -d '{"agent_id":"%s","to":"+14155550101"}'

See what became of it:

  curl -s %s/v1/calls -H 'Authorization: Bearer %s'

Or let `+"`make demo`"+` do it in another terminal, signed webhook included. Everything else stands in %s.
Ctrl-C stops; the next start continues here.
`, took.Seconds(), s.baseURL(), demo.WriteKey, demo.AgentID, s.baseURL(), demo.ReadKey, file)
}
