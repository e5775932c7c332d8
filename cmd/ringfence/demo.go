package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
)

type demoCommand struct {
	To      string        `help:"E.164 number. Last digits: 90 busy, 91 no answer, 94 voicemail. Default: one that talks."`
	Timeout time.Duration `help:"Maximum duration of the whole demo." default:"60s"`
}

// pollInterval is long enough that a demo's requests stay below the rate limit of its API key.
const pollInterval = 400 * time.Millisecond

// request contains the fields of a call request that the demo reads.
type request struct {
	ID          string  `json:"id"`
	Status      string  `json:"status"`
	CallID      *string `json:"call_id"`
	ErrorCode   *string `json:"error_code"`
	ErrorDetail *string `json:"error_detail"`
}

func (r request) ended() bool { return r.Status != "queued" && r.Status != "dialing" && r.Status != "" }

type demo struct {
	client  *client
	tell    *callPrinter
	ref     string
	request request
	status  string // the call's status that was printed last
	// subscribed is false if the workspace has reached its limit of subscriptions. The demo then
	// polls the call.
	subscribed bool
	final      *call // the ended call, from the terminal webhook or from a poll
}

// Run places one call. It returns when the call request has ended and the signature of its terminal
// webhook was verified.
func (c demoCommand) Run(ctx context.Context, out io.Writer) (err error) {
	late := fmt.Errorf("the call did not end within %s: see the output of `make run`", c.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, late)
	defer cancel()
	found, err := findStack(ctx)
	if err != nil {
		return err
	}
	receiver, err := openEndpoint(found.home, 0)
	if err != nil {
		return err
	}
	defer receiver.close()
	d := &demo{client: newClient(found), tell: newStory(out), ref: "demo-" + uuid.NewString()}
	d.tell.title("One call through Ringfence at %s", found.BaseURL)
	id, secret, err := d.client.subscribe(ctx, "demo", receiver.url, callEvents())
	var full *limitError
	switch {
	case errors.As(err, &full):
		d.tell.printLimit(full)
		d.tell.raw("  The call is shown without its webhooks.\n\n")
	case err != nil:
		return err
	default:
		defer func() {
			if gone := d.client.unsubscribe(ctx, id); gone != nil && err == nil {
				err = gone
			}
		}()
		d.subscribed = true
		receiver.setSecret(secret)
		d.tell.step("subscribed", "%s receives every call event", receiver.url)
	}
	if err := d.place(ctx, c.To, found.AgentID); err != nil {
		return err
	}
	if err := d.awaitEnd(ctx, receiver.arrivals); err != nil {
		return err
	}
	d.tell.printSummary(*d.final)
	return nil
}

func callEvents() []string {
	return []string{"call.ringing", "call.answered", "call.completed", "call.failed", "call.no_answer", "call.busy"}
}

func (d *demo) place(ctx context.Context, to, agent string) error {
	if to == "" {
		ending, err := rand.Int(rand.Reader, big.NewInt(90))
		if err != nil {
			return fmt.Errorf("choose a number: %w", err)
		}
		to = fmt.Sprintf("+141555501%02d", ending)
	}
	body := map[string]any{"agent_id": agent, "to": to, "external_ref": d.ref, "idempotency_key": d.ref}
	if err := d.client.send(ctx, http.MethodPost, "/v1/calls", body, &d.request); err != nil {
		return err
	}
	d.tell.step("request", "%-12s %s", d.request.Status, to)
	return nil
}

// awaitEnd prints each change until the call request has ended and the final state of the call is
// known.
func (d *demo) awaitEnd(ctx context.Context, arrivals <-chan arrival) error {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for d.final == nil || !d.request.ended() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case got := <-arrivals:
			if err := d.readRequest(ctx); err != nil { // first print the webhooks that have arrived
				return err
			}
			if err := d.receive(got); err != nil {
				return err
			}
		case <-poll.C:
			if err := d.readRequest(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *demo) receive(got arrival) error {
	if got.fault != nil {
		return fmt.Errorf("the signature of a webhook is invalid: %w", got.fault)
	}
	if got.Data.ExternalRef == nil || *got.Data.ExternalRef != d.ref {
		return nil // the event belongs to another call in the workspace
	}
	d.tell.step("webhook", "%-16s signature verified, attempt %s", got.Type, got.attempt)
	if !slices.Contains([]string{"call.ringing", "call.answered"}, got.Type) {
		d.final = &got.Data
	}
	return nil
}

func (d *demo) readRequest(ctx context.Context) error {
	before := d.request.Status
	if err := ignoreBusy(d.client.send(ctx, http.MethodGet, "/v1/call-requests/"+d.request.ID, nil,
		&d.request)); err != nil {
		return err
	}
	if d.request.Status != before {
		d.tell.step("request", "%s", d.request.Status)
	}
	if d.request.CallID == nil {
		if d.request.ended() {
			return fmt.Errorf("the call request ended as %s without a call: %s: %s", d.request.Status, text(d.request.ErrorCode),
				text(d.request.ErrorDetail))
		}
		return nil
	}
	var now call
	if err := ignoreBusy(d.client.send(ctx, http.MethodGet, "/v1/calls/"+*d.request.CallID, nil, &now)); err != nil {
		return err
	}
	if now.Status != "" && now.Status != d.status {
		d.status = now.Status
		d.tell.step("call", "%s", now.Status)
	}
	if !d.subscribed && slices.Contains([]string{"completed", "no_answer", "busy", "failed", "canceled"}, now.Status) {
		d.final = &now
	}
	return nil
}

// ignoreBusy returns nil for a response with status 429 or 503, because the demo polls again. It
// returns every other error.
func ignoreBusy(err error) error {
	var refused *refusal
	if errors.As(err, &refused) && (refused.status == http.StatusTooManyRequests || refused.status == http.StatusServiceUnavailable) {
		return nil
	}
	return err
}
