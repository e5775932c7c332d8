package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"ringfence.dev/cmd/ringfence/internal/operator"
)

type listenCommand struct {
	Port    int      `help:"Port to listen on. Default: any free port."`
	Events  []string `help:"Event types to receive. Default: every call event."`
	Forward string   `placeholder:"URL" help:"Send each verified webhook to this HTTP address, with its headers and body unchanged. The status of the response decides whether the webhook is sent again."`
	Quiet   bool     `help:"Print one line for each webhook, without its body." short:"q"`
}

// Run subscribes a local endpoint, requests a webhook.test event for it, and prints all webhooks
// that arrive until ctx ends.
func (c listenCommand) Run(ctx context.Context, out io.Writer) (err error) {
	found, err := findStack(ctx)
	if err != nil {
		return err
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
		tell.raw("Verified webhooks are forwarded to %s. Their signing secret is %s\n", operator.Printable(c.Forward), operator.Printable(secret))
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

func (c listenCommand) print(tell *callPrinter, got arrival) {
	verdict := "signature verified"
	if got.fault != nil {
		verdict = "REFUSED: " + got.fault.Error()
	}
	if got.forwarded != "" {
		verdict += ", " + got.forwarded
	}
	tell.step("webhook", "%-16s %s, attempt %s, delivery %s", got.Type, verdict, got.attempt, got.deliveryID)
	if c.Quiet {
		return
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, got.body, "    ", "  ") != nil {
		pretty.Reset()
		fmt.Fprintf(&pretty, "%q", got.body)
	}
	tell.raw("    %s\n", operator.Escaped(pretty.Bytes()))
}
