package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

type trunksCheck struct {
	Name string `arg:"" help:"Name or id of the trunk."`
}

type trunkCheck struct {
	Name  string
	Steps []struct{ Step, Result, Seen, Remedy string }
}

func (c trunksCheck) Run(ctx context.Context, d *Client) error {
	id, err := trunkID(ctx, d, c.Name)
	if err != nil {
		return err
	}
	answer, err := d.Ask(ctx, http.MethodPost, At("trunks", id, "check"), nil)
	if err != nil {
		return err
	}
	var check trunkCheck
	if err := json.Unmarshal(answer, &check); err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	if d.JSON() {
		err = d.Member(answer)
	} else {
		err = check.print(d)
	}
	if err != nil {
		return err
	}
	for _, step := range check.Steps {
		if step.Result == "failed" {
			return fmt.Errorf("trunk %s: the step %s failed", check.Name, step.Step)
		}
	}
	return nil
}

// print prints one line for each step, and another line if the step has a remedy.
func (c trunkCheck) print(d *Client) error {
	if err := d.Say("Trunk " + c.Name); err != nil {
		return err
	}
	for _, s := range c.Steps {
		if err := d.Say(fmt.Sprintf("%-9s  %-7s  %s", s.Step, s.Result, s.Seen)); err != nil {
			return err
		}
		if s.Remedy == "" {
			continue
		}
		if err := d.Say(fmt.Sprintf("%-9s  %-7s  %s", "", "remedy", s.Remedy)); err != nil {
			return err
		}
	}
	return nil
}

// trunkID returns the id of the trunk with the given name or id. Names are unique regardless of
// case.
func trunkID(ctx context.Context, d *Client, name string) (string, error) {
	all, err := d.Members(ctx, At("trunks"), nil)
	if err != nil {
		return "", err
	}
	for _, member := range all {
		var one struct{ ID, Name string }
		if err := json.Unmarshal(member, &one); err != nil {
			return "", fmt.Errorf("read the response: %w", err)
		}
		if one.ID == name || strings.EqualFold(one.Name, name) {
			return one.ID, nil
		}
	}
	return "", fmt.Errorf("no trunk has the name %q; `ringfence trunks list` lists them", name)
}

type trunksRejectedCalls struct{}

func (trunksRejectedCalls) Run(ctx context.Context, d *Client) error {
	return d.listUnpaged(ctx, At("trunks", "rejected-calls"),
		"at", "source", "transport", "from", "to", "user_agent", "reason", "hint")
}
