package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringfence.dev/proto/openapi"
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
	// Waiting contains the subscriptions with deliveries that are queued or held.
	Waiting []waitingDeliveries `json:"waiting_deliveries"`
	// Erasures contains the erasures that are not done.
	Erasures []openErasure `json:"open_erasures"`
}

// waitingDeliveries describes the deliveries of a subscription that were not sent yet. Oldest is
// the time of the oldest delivery. If More is true, only the newest deliveries were counted.
type waitingDeliveries struct {
	URL    string            `json:"url"`
	Count  int               `json:"count"`
	More   bool              `json:"more"`
	Oldest openapi.Timestamp `json:"oldest"`
}

type openErasure struct {
	ID          string             `json:"id"`
	RequestedAt openapi.Timestamp  `json:"requested_at"`
	DoneAt      *openapi.Timestamp `json:"done_at"`
	Services    []struct {
		Service string
		Open    int64
	} `json:"services"`
}

// waitsFor returns the services that have not reported that the erasure is done.
func (e openErasure) waitsFor() string {
	var names []string
	for _, one := range e.Services {
		if one.Open > 0 {
			names = append(names, one.Service)
		}
	}
	return cmp.Or(strings.Join(names, " and "), "the services")
}

func (c customerStatus) needsAttention() bool {
	return c.isEmpty() || len(c.Failing) > 0 || len(c.Waiting) > 0 || len(c.Erasures) > 0
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

// lines returns a line for the empty wallet, for each failing subscription, for the waiting
// deliveries of each subscription, and for each open erasure.
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
	for _, w := range c.Waiting {
		count := strconv.Itoa(w.Count)
		if w.More {
			count += " or more"
		}
		lines = append(lines, statusLine("webhook", "waiting", "%s of %s, %s deliveries wait, one of them since %s",
			w.URL, c.Name, count, w.Oldest.UTC().Format(time.RFC3339)))
	}
	for _, e := range c.Erasures {
		lines = append(lines, statusLine("erasure", "open", "%s of %s, since %s, waits for %s",
			e.ID, c.Name, e.RequestedAt.UTC().Format(time.RFC3339), e.waitsFor()))
	}
	return lines
}

// checkCustomers returns the active workspaces with an empty wallet, a failing subscription,
// waiting deliveries or an open erasure. only is the id of the workspace to check. If it is empty,
// all workspaces are checked.
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
		if one.needsAttention() {
			found = append(found, one)
		}
	}
	return found, nil
}

func (d *Client) checkCustomer(ctx context.Context, workspace json.RawMessage) (c customerStatus, err error) {
	if err := json.Unmarshal(workspace, &c); err != nil {
		return c, fmt.Errorf("read a workspace: %w", err)
	}
	c.Failing, c.Waiting, c.Erasures = []failingSubscription{}, []waitingDeliveries{}, []openErasure{}
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
		if c.Waiting, err = d.appendWaiting(ctx, c.Waiting, c.ID, s); err != nil {
			return c, err
		}
	}
	c.Erasures, err = d.openErasures(ctx, c.ID)
	return c, err
}

// waitingStatuses are the statuses of deliveries that were not sent yet.
var waitingStatuses = []string{"queued", "held"}

// appendWaiting appends the waiting deliveries of a subscription if the oldest one has waited for a
// minute or longer. It reads only the newest page of each status.
func (d *Client) appendWaiting(
	ctx context.Context, all []waitingDeliveries, workspace string, s failingSubscription,
) ([]waitingDeliveries, error) {
	waiting := waitingDeliveries{URL: s.URL}
	for _, state := range waitingStatuses {
		path := At("workspaces", workspace, "webhook-subscriptions", s.ID, "deliveries")
		answer, err := d.Ask(ctx, http.MethodGet, path+"?limit=100&status="+state, nil)
		if err != nil {
			return all, err
		}
		var found struct {
			Data []struct {
				CreatedAt openapi.Timestamp `json:"created_at"`
			}
			HasMore bool `json:"has_more"`
		}
		if err := json.Unmarshal(answer, &found); err != nil {
			return all, fmt.Errorf("read the deliveries of a subscription: %w", err)
		}
		waiting.Count, waiting.More = waiting.Count+len(found.Data), waiting.More || found.HasMore
		for _, delivery := range found.Data { // newest first
			if waiting.Oldest.IsZero() || delivery.CreatedAt.Before(waiting.Oldest.Time) {
				waiting.Oldest = delivery.CreatedAt
			}
		}
	}
	if waiting.Count == 0 || time.Since(waiting.Oldest.Time) < time.Minute {
		return all, nil
	}
	return append(all, waiting), nil
}

func (d *Client) openErasures(ctx context.Context, workspace string) ([]openErasure, error) {
	members, err := d.Members(ctx, At("workspaces", workspace, "erasures"), nil)
	if err != nil {
		return nil, err
	}
	open := []openErasure{}
	for _, member := range members {
		var one openErasure
		if err := json.Unmarshal(member, &one); err != nil {
			return nil, fmt.Errorf("read an erasure: %w", err)
		}
		if one.DoneAt == nil {
			open = append(open, one)
		}
	}
	return open, nil
}
