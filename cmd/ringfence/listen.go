package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/cmd/ringfence/internal/operator"
	"ringfence.dev/proto/openapi"
)

type listenCommand struct {
	Port    int      `help:"Port to listen on. Default: any free port."`
	Events  []string `help:"Event types to receive. Default: every call event."`
	Forward string   `placeholder:"URL" help:"Send verified webhooks, unchanged, to this HTTP address."`
	Quiet   bool     `help:"Print one line for each webhook, without its body." short:"q"`
	Stream  bool     `help:"Read the event stream (GET /v1/events) instead of webhooks, without a subscription."`
	After   string   `help:"With --stream: resume after the event with this id."`
}

// Run subscribes a local endpoint, requests a webhook.test event for it, and prints all webhooks
// that arrive until ctx ends.
func (c listenCommand) Run(ctx context.Context, out io.Writer) (err error) {
	found, err := findStack(ctx)
	if err != nil {
		return err
	}
	if c.Stream {
		return c.follow(ctx, found, newStory(out))
	}
	if c.After != "" {
		return errors.New("--after needs --stream")
	}
	var forward *forwarder
	if c.Forward != "" {
		if forward, err = newForwarder(c.Forward); err != nil {
			return err
		}
	}
	receiver, err := openEndpoint(found.home, c.Port)
	if err != nil {
		return err
	}
	defer receiver.close()
	receiver.forward = forward
	client, tell := newClient(found), newStory(out)
	if len(c.Events) == 0 {
		c.Events = callEvents()
	}
	id, secret, err := client.subscribe(ctx, "listen", receiver.url, c.Events)
	var full *limitError
	if errors.As(err, &full) {
		tell.printLimit(full)
		return fmt.Errorf("%w `ringfence listen` needs its own subscription", err)
	}
	if err != nil {
		return err
	}
	defer func() {
		if gone := client.unsubscribe(ctx, id); gone != nil && err == nil {
			err = gone
		}
	}()
	receiver.setSecret(secret)
	if forward != nil {
		tell.raw("Verified webhooks are forwarded to %s. Their signing secret is %s\n",
			operator.Printable(c.Forward), operator.Printable(secret))
	}
	tell.title("Listening at %s for the webhooks of subscription %s. Ctrl-C ends it.", receiver.url, id)
	var queued struct{ Queued bool }
	if err := client.send(ctx, http.MethodPost, subscriptions+"/"+id+"/test", nil, &queued); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil // Ctrl-C ends the command
		case got := <-receiver.arrivals:
			c.print(tell, got)
		}
	}
}

// follow prints the events of GET /v1/events until ctx ends. It connects again when the response
// ends.
func (c listenCommand) follow(ctx context.Context, found stack, tell *callPrinter) error {
	if c.Port != 0 {
		return errors.New("--port has no effect with --stream")
	}
	var params openapi.StreamEventsParams
	if c.After != "" {
		id, err := uuid.Parse(c.After)
		if err != nil {
			return fmt.Errorf("--after %q is not the id of an event", c.After)
		}
		params.LastEventID = &id
	}
	if len(c.Events) > 0 {
		types := strings.Join(c.Events, ",")
		params.Types = &types
	}
	// no time limit: the response has no end
	streaming := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	api, err := openapi.NewClient(found.BaseURL, openapi.WithHTTPClient(streaming),
		openapi.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+found.ReadKey)
			return nil
		}))
	if err != nil {
		return fmt.Errorf("make client of %s: %w", found.BaseURL, err)
	}
	tell.title("Reading the event stream of the demo workspace. Ctrl-C ends it.")
	return openapi.FollowEvents(ctx, api, params, func(event openapi.StreamedEvent) error {
		tell.step("event", "%-24s %s", event.Type, event.ID)
		c.printBody(tell, event.Data)
		return nil
	})
}

func (c listenCommand) print(tell *callPrinter, got arrival) {
	verdict := "signature verified"
	if got.fault != nil {
		verdict = "REFUSED: " + got.fault.Error()
	}
	if got.forwarded != "" {
		verdict += ", " + got.forwarded
	}
	tell.step("webhook", "%-16s %s, attempt %s, delivery %s", got.Type, verdict, got.attempt, got.deliveryID)
	c.printBody(tell, got.body)
}

func (c listenCommand) printBody(tell *callPrinter, body []byte) {
	if c.Quiet {
		return
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, body, "    ", "  ") != nil {
		pretty.Reset()
		fmt.Fprintf(&pretty, "%q", body)
	}
	tell.raw("    %s\n", operator.Escaped(pretty.Bytes()))
}
