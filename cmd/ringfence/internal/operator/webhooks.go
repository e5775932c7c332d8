package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

type webhooks struct {
	List       webhooksList       `cmd:"" help:"List subscriptions with their last failure."`
	Show       webhooksShow       `cmd:"" help:"Show a subscription."`
	Pause      webhooksPause      `cmd:"" help:"Pause a subscription. Queued deliveries are held and new events are skipped. Both can be sent later."`
	Resume     webhooksResume     `cmd:"" help:"Set a paused or failed subscription to active. Its held deliveries are sent."`
	Remove     webhooksRemove     `cmd:"" aliases:"delete" help:"Delete a subscription with its queued deliveries."`
	Deliveries webhooksDeliveries `cmd:"" help:"List the deliveries of a subscription."`
	Delivery   webhooksDelivery   `cmd:"" help:"Show a delivery with all its attempts."`
	Resend     webhooksResend     `cmd:"" help:"Send a delivery again now. The new attempts replace a waiting retry."`
	Replay     webhooksReplay     `cmd:"" help:"Send deliveries again: one delivery, all deliveries of a call or of a period, or all that failed or were skipped since a time."`
}

type webhooksList struct{ Listed }

func (c webhooksList) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("webhook-subscriptions"), nil, c.Listed,
		"id", "name", "status", "failures=consecutive_failures", "last_success_at", "last_failure_at",
		"last_error=last_cause", "url")
}

type subscription struct {
	Subscription string `arg:"" help:"Id of the subscription."`
}

type webhooksShow struct{ subscription }

func (c webhooksShow) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("webhook-subscriptions", c.Subscription), nil)
}

type webhooksPause struct{ subscription }

func (c webhooksPause) Run(ctx context.Context, o *WorkspaceClient) error {
	return c.setStatus(ctx, o, "paused")
}

type webhooksResume struct{ subscription }

func (c webhooksResume) Run(ctx context.Context, o *WorkspaceClient) error {
	return c.setStatus(ctx, o, "active")
}

func (s subscription) setStatus(ctx context.Context, o *WorkspaceClient, status string) error {
	return o.Show(ctx, http.MethodPatch, o.at("webhook-subscriptions", s.Subscription), map[string]any{"status": status})
}

type webhooksRemove struct {
	subscription
	Confirmation
}

func (c webhooksRemove) Run(ctx context.Context, o *WorkspaceClient) error {
	if err := c.Confirm(ctx, o.Client, "This deletes webhook subscription %s and its queued deliveries",
		c.Subscription); err != nil {
		return err
	}
	return o.Show(ctx, http.MethodDelete, o.at("webhook-subscriptions", c.Subscription), nil)
}

type webhooksDeliveries struct {
	subscription
	Status string `help:"List only deliveries with this status: failed, skipped, delivered, …"`
	Event  string `help:"List only deliveries of this event type: call.completed, …"`
	Call   string `help:"List only deliveries of the call with this id."`
	Listed
}

func (c webhooksDeliveries) Run(ctx context.Context, o *WorkspaceClient) error {
	filter := url.Values{"status": {c.Status}, "event_type": {c.Event}, "call_id": {c.Call}}
	return o.List(ctx, o.at("webhook-subscriptions", c.Subscription, "deliveries"), filter, c.Listed,
		"id", "created_at", "event_type", "status", "attempts", "last_code", "last_error", "next_attempt_at", "call_id")
}

type webhooksDelivery struct {
	subscription
	Delivery string `arg:"" help:"Id of the delivery."`
}

func (c webhooksDelivery) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("webhook-subscriptions", c.Subscription, "deliveries", c.Delivery), nil)
}

type webhooksResend struct {
	subscription
	Delivery string `arg:"" help:"Id of the delivery."`
}

func (c webhooksResend) Run(ctx context.Context, o *WorkspaceClient) error {
	path := o.at("webhook-subscriptions", c.Subscription, "deliveries", c.Delivery, "resend")
	err := o.Show(ctx, http.MethodPost, path, nil)
	return suggestResume(err, o, c.Subscription)
}

// suggestResume appends the command that resumes the subscription to the message of err, if the
// server refused the request because the subscription is not active.
func suggestResume(err error, o *WorkspaceClient, subscription string) error {
	var refused *Refusal
	if errors.As(err, &refused) && refused.Code == "subscription_not_active" {
		refused.Message += fmt.Sprintf(" To do so: ringfence -w %s webhooks resume %s", o.workspace, subscription)
	}
	return err
}

type webhooksReplay struct {
	subscription
	Delivery string `xor:"what" help:"Id of one delivery to send again."`
	Call     string `xor:"what" help:"Id of the call whose deliveries are sent again."`
	Failed   Time   `xor:"what" placeholder:"SINCE" help:"All deliveries that failed since a time or an age: 2h."`
	Skipped  Time   `xor:"what" placeholder:"SINCE" help:"All deliveries that were skipped since a time."`
	Since    Time   `xor:"what" placeholder:"TIME" help:"All ended deliveries of events that were created since a time."`

	Until      Time `placeholder:"TIME" help:"With --since: only events that were created before this time."`
	OnlyFailed bool `help:"With --since: only deliveries that failed."`
}

// Validate refuses a missing argument.
func (c webhooksReplay) Validate() error {
	if c.Delivery+c.Call == "" && c.Failed.IsZero() && c.Skipped.IsZero() && c.Since.IsZero() {
		return errors.New(
			"no delivery was selected: use --delivery ID, --call ID, --failed SINCE, --skipped SINCE or --since TIME",
		)
	}
	if c.Since.IsZero() && (!c.Until.IsZero() || c.OnlyFailed) {
		return errors.New("--until and --only-failed need --since")
	}
	return nil
}

func (c webhooksReplay) body() map[string]any {
	switch {
	case c.Call != "":
		return map[string]any{"call_id": c.Call}
	case !c.Failed.IsZero():
		return map[string]any{"status": "failed", "since": utc(c.Failed)}
	case !c.Skipped.IsZero():
		return map[string]any{"status": "skipped", "since": utc(c.Skipped)}
	}
	return map[string]any{} // a request for one delivery needs no body fields
}

func utc(at Time) string { return at.UTC().Format(time.RFC3339Nano) }

// replayPeriod replays a period with one request.
func (c webhooksReplay) replayPeriod(ctx context.Context, o *WorkspaceClient) error {
	body := map[string]any{"since": utc(c.Since), "only_failed": c.OnlyFailed}
	if !c.Until.IsZero() {
		body["until"] = utc(c.Until)
	}
	answer, err := o.Ask(ctx, http.MethodPost, o.at("webhook-subscriptions", c.Subscription, "replay"), body)
	if err != nil {
		return suggestResume(err, o, c.Subscription)
	}
	return o.Member(answer)
}

// Run replays one batch after the other. The loop ends, because deliveries that fail after the
// start of the command are not replayed again.
func (c webhooksReplay) Run(ctx context.Context, o *WorkspaceClient) error {
	if !c.Since.IsZero() {
		return c.replayPeriod(ctx, o)
	}
	if shortID.MatchString(c.Call) {
		id, err := o.findID(ctx, o.at("calls"), c.Call)
		if err != nil {
			return err
		}
		c.Call = id
	}
	body := c.body()
	body["before"] = time.Now().UTC().Format(time.RFC3339Nano)
	path := o.at("webhook-subscriptions", c.Subscription, "deliveries", "replay")
	if c.Delivery != "" {
		path = o.at("webhook-subscriptions", c.Subscription, "deliveries", c.Delivery, "replay")
	}
	total := 0
	for more := true; more; {
		answer, err := o.Ask(ctx, http.MethodPost, path, body)
		if err != nil {
			return suggestResume(err, o, c.Subscription)
		}
		var done struct {
			Replayed int
			HasMore  bool `json:"has_more"`
		}
		if err := json.Unmarshal(answer, &done); err != nil {
			return fmt.Errorf("read the number of replayed deliveries: %w", err)
		}
		total, more = total+done.Replayed, done.HasMore && done.Replayed > 0
		if more {
			o.Remark("%d deliveries queued again so far", total)
		}
	}
	return o.Member(fmt.Appendf(nil, `{"replayed":%d}`, total))
}
