// Package consumer applies events of other services: reports about erasures, and the calling
// policies of workspaces.
package consumer

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/erasurereports"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

type Consumer struct {
	store *store.Store
	packs countryrules.Library
}

// New returns a consumer. packs are the policy packs that a calling policy may name.
func New(st *store.Store, packs countryrules.Library) *Consumer {
	return &Consumer{store: st, packs: packs}
}

func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{
		kafka.ErasureReports.Name: inbox.Each(c.onErasureReport, nil),
		kafka.Workspaces.Name:     inbox.Each(c.onWorkspace, nil),
	}
}

// onWorkspace makes the calling policy of an event the current policy, unless the same or a newer
// policy is already current. If this build cannot read the policy, the record is parked.
func (c *Consumer) onWorkspace(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var ev eventv1.WorkspaceEvent
	if err := rec.Decode(&ev); err != nil {
		return err
	}
	change, err := store.PolicyChangeOf(&ev)
	if err != nil {
		return kafka.Parkf("read workspace event: %w", err)
	}
	if change == nil {
		return kafka.Skipf("the workspace event contains no calling policy")
	}
	err = c.store.SetPolicy(ctx, tx, *change, c.packs)
	var invalid *apierr.Error
	if errors.As(err, &invalid) {
		return kafka.Parkf("apply policy: %w", err)
	}
	return err
}

func (c *Consumer) onErasureReport(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	return erasurereports.ApplyReport(ctx, c.store, tx, rec)
}
