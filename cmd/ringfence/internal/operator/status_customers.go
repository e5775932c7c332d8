package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

// customerChecks is the number of workspaces that are checked at the same time.
const customerChecks = 8

// customerStatus contains what `status` reads about a workspace.
type customerStatus struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Spendable json.Number `json:"spendable"`
	Currency  string      `json:"currency"`
	// Failing contains the subscriptions that failed or whose last deliveries failed.
	Failing []failingSubscription `json:"failing_subscriptions"`
}

type failingSubscription struct {
	ID        string  `json:"id"`
	URL       string  `json:"url"`
	Status    string  `json:"status"`
	Failures  int     `json:"consecutive_failures"`
	LastError *string `json:"last_error"`
}

// isEmpty reports whether the wallet has no spendable credit, so that no call can be placed.
func (c customerStatus) isEmpty() bool {
	spendable, err := c.Spendable.Float64()
	return err == nil && spendable <= 0
}

// lines returns a line for the empty wallet and for each failing subscription.
func (c customerStatus) lines() (lines []string) {
	if c.isEmpty() {
		lines = append(lines, statusLine("wallet", "empty",
			"%s has %s %s to spend, `ringfence -w %s wallet top-up` adds credit", c.Name, c.Spendable, c.Currency, c.ID))
	}
	for _, s := range c.Failing {
		state := "failing"
		if s.Status == "failed" {
			state = "failed"
		}
		lines = append(lines, statusLine("webhook", state, "%s of %s, %d failures in a row, last error: %s",
			s.URL, c.Name, s.Failures, cmp.Or(text(s.LastError), "unknown")))
	}
	return lines
}

// checkCustomers returns the active workspaces with an empty wallet or a failing subscription. If
// only is not empty, it checks the workspace with that id.
func (d *Client) checkCustomers(ctx context.Context, only string) ([]customerStatus, error) {
	var members []json.RawMessage
	var err error
	if only == "" {
		members, err = d.Members(ctx, At("workspaces"), nil)
	} else {
		members = make([]json.RawMessage, 1)
		members[0], err = d.Ask(ctx, http.MethodGet, At("workspaces", only), nil)
	}
	if err != nil {
		return nil, err
	}
	all, faults := make([]customerStatus, len(members)), make([]error, len(members))
	slots := make(chan struct{}, customerChecks)
	var running sync.WaitGroup
	for i := range members {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			all[i], faults[i] = d.checkCustomer(ctx, members[i])
		})
	}
	running.Wait()
	found := []customerStatus{}
	for i, one := range all {
		if faults[i] != nil {
			return nil, faults[i]
		}
		if one.isEmpty() || len(one.Failing) > 0 {
			found = append(found, one)
		}
	}
	return found, nil
}

func (d *Client) checkCustomer(ctx context.Context, workspace json.RawMessage) (c customerStatus, err error) {
	if err := json.Unmarshal(workspace, &c); err != nil {
		return c, fmt.Errorf("read a workspace: %w", err)
	}
	c.Failing = []failingSubscription{}
	var state struct{ Status string }
	if err := json.Unmarshal(workspace, &state); err != nil || state.Status == "suspended" {
		return c, err
	}
	wallet, err := d.Ask(ctx, http.MethodGet, At("workspaces", c.ID, "wallet"), nil)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(wallet, &c); err != nil {
		return c, fmt.Errorf("read a wallet: %w", err)
	}
	subscriptions, err := d.Members(ctx, At("workspaces", c.ID, "webhook-subscriptions"), nil)
	if err != nil {
		return c, err
	}
	for _, member := range subscriptions {
		var s failingSubscription
		if err := json.Unmarshal(member, &s); err != nil {
			return c, fmt.Errorf("read a subscription: %w", err)
		}
		if s.Status == "failed" || s.Status == "active" && s.Failures > 0 {
			c.Failing = append(c.Failing, s)
		}
	}
	return c, nil
}
