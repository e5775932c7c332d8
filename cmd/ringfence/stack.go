package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
)

// stack is the structure of .ringfence/demo.json (cmd/ringfence-local/README.md).
type stack struct {
	BaseURL     string `json:"base_url"`
	AdminURL    string `json:"admin_url"`
	AdminToken  string `json:"admin_token"`
	WorkspaceID string `json:"workspace_id"`
	AgentID     string `json:"agent_id"`
	WriteKey    string `json:"write_key"`
	ReadKey     string `json:"read_key"`

	home string
}

// findStack reads demo.json and sends a request to the stack to check whether calls can be placed.
func findStack(ctx context.Context) (stack, error) {
	found, err := readStack()
	if err != nil {
		return found, err
	}
	return found, found.ready(ctx)
}

// readStack reads demo.json. Each error is one line that contains its remedy.
func readStack() (stack, error) {
	home := os.Getenv("RINGFENCE_HOME")
	if home == "" {
		home = ".ringfence"
	}
	found := stack{home: home}
	file := filepath.Join(home, "demo.json")
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return found, fmt.Errorf("there is no %s: start the stack with `make run` in another terminal and wait until it "+
			"is ready (RINGFENCE_HOME can name another directory)", file)
	case err != nil:
		return found, fmt.Errorf("read %s: %w: run this as the user who started the stack", file, err)
	}
	if err := json.Unmarshal(data, &found); err != nil {
		return found, fmt.Errorf("%s cannot be read (%w): stop the stack and start it again with `make run`", file, err)
	}
	return found, nil
}

func (s stack) ready(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.BaseURL+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("base_url of demo.json is %q: stop the stack and start it again with `make run`", s.BaseURL)
	}
	resp, err := plainClient().Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("the stack at %s does not respond: start it with `make run` in another terminal", s.BaseURL)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the stack at %s is not ready (%s): wait until `make run` prints that it is ready", s.BaseURL,
			resp.Status)
	}
	return nil
}
