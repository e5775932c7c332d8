package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/test/bench/internal/probe"
)

// The numbers of commits that one POST makes on an idle stack (see ofOnePost): before the response,
// and in total. More commits are a regression.
const (
	awaitedCommits  = 3
	expectedCommits = 6
)

// ofOnePost returns the durable commits of one POST without an idempotency key, in order.
func ofOnePost() []probe.Commit {
	return []probe.Commit{
		// commit of the pre-check: the contact, the pre-check and its decision
		{Awaited: true, Writes: []probe.Write{
			{Table: "contacts_compliance.contacts", Fresh: map[string]probe.Value{"id": probe.Another, "phone_e164": probe.Number}},
			{Table: "contacts_compliance.pre_checks", Fresh: map[string]probe.Value{"call_request_id": probe.Request, "phone_e164": probe.Number}},
			{Table: "contacts_compliance.decisions", Fresh: map[string]probe.Value{"id": probe.Another, "call_request_id": probe.Request, "phone_e164": probe.Number}},
		}},
		// commit of the hold: the wallet, the hold and the ledger entry
		{Awaited: true, Writes: []probe.Write{
			{Table: "billing_wallet.holds", Fresh: map[string]probe.Value{"request_id": probe.Request, "workspace_id": probe.Lane}},
			{Table: "billing_wallet.transactions", Fresh: map[string]probe.Value{"id": probe.Another, "request_id": probe.Request, "workspace_id": probe.Lane}},
			{Table: "billing_wallet.wallets", Args: []probe.Value{probe.Lane},
				SQL: "UPDATE {} SET wallet_micro = wallet_micro - 1, held_micro = held_micro + 1 WHERE workspace_id = $1"},
		}},
		{Awaited: true, Writes: []probe.Write{ // commit of the request and its event
			{Table: "calls.call_requests", Fresh: map[string]probe.Value{"id": probe.Request, "to_e164": probe.Number}},
			{Table: "calls.outbox", Sample: true, Fresh: map[string]probe.Value{"id": probe.Sequence, "event_id": probe.Another}},
		}},
		{Writes: []probe.Write{ // commit of the relay, which deletes the published event
			{Table: "calls.outbox", Args: []probe.Value{probe.Sequence}, SQL: "DELETE FROM {} WHERE id = $1"},
		}},
		{Writes: []probe.Write{ // commit of the dialer, which inserts the request into its queue
			inboxRow("dialer"),
			{Table: "dialer.dial_queue", Fresh: map[string]probe.Value{"call_request_id": probe.Request, "to_e164": probe.Number}},
		}},
		{Writes: []probe.Write{ // commit of billing-wallet, which records that the hold has a request
			inboxRow("billing_wallet"),
			{Table: "billing_wallet.holds", Args: []probe.Value{probe.Request}, SQL: "UPDATE {} SET confirmed_at = now() WHERE request_id = $1"},
		}},
	}
}

// inboxRow returns the write of the id of a consumed event. The goal was set when every consumer
// made this write. The bench creates the table itself, so a change of the product does not change
// the baseline.
func inboxRow(schema string) probe.Write {
	return probe.Write{
		Table: schema + ".inbox",
		Create: `CREATE TABLE {} (consumer text NOT NULL, topic text NOT NULL, event_id uuid NOT NULL,
			received_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (consumer, topic, event_id));
			CREATE INDEX ON {} (received_at)`,
		SQL:  "INSERT INTO {} (consumer, topic, event_id) VALUES ('bench', 'call-requests.v1', $1)",
		Args: []probe.Value{probe.Another},
	}
}

// makeCopies creates the tables of the baseline loop (see package probe). Each goroutine has its
// own wallet.
func makeCopies(ctx context.Context, c probe.Copies, lanes int) error {
	if err := c.Make(ctx, ofOnePost()); err != nil {
		return err
	}
	for n := range lanes {
		_, err := c.DB.Exec(ctx, `INSERT INTO bench.billing_wallet_wallets (workspace_id, currency, wallet_micro, funding_micro)
			VALUES ($1, 'USD', 1000000000000, -1000000000000)`, probe.LaneID(n))
		if err != nil {
			return fmt.Errorf("make wallets: %w", err)
		}
	}
	id, now := uuid.Must(uuid.NewV7()), timestamppb.Now()
	return c.Sample(ctx, "calls.outbox", kafka.CallRequests, &eventv1.CallRequestEvent{CallRequestId: id.String(), WorkspaceId: id.String(), OccurredAt: now,
		Event: &eventv1.CallRequestEvent_Requested{Requested: &eventv1.Requested{
			ToE164: "+14155550123", AgentId: id.String(), ContactId: id.String(), VariablesJson: []byte("{}"),
			ScheduledFor: now, MaxCallSeconds: 600, QueuedAt: now,
		}}})
}

// phoneNumber returns the n-th of ten million numbers. None of them is busy, silent or invalid.
func phoneNumber(n int64) string {
	return fmt.Sprintf("+1415%05d%02d", n/90%100_000, n%90)
}
