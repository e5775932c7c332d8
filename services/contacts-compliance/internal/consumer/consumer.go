// Package consumer applies events of other services: reports about erasures, and the calling
// policies of workspaces. It also publishes an erasure again until every service has reported that
// its data is erased. Store.Erase of package store erases the data of this service.
package consumer

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
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
		kafka.ErasureReports.Name: inbox.Each(c.onReport, nil),
		kafka.Workspaces.Name:     inbox.Each(c.onWorkspace, nil),
	}
}

// onWorkspace makes the calling policy in the event the current policy of the workspace. It does
// nothing if this policy or a newer one is already current. If this build cannot read the policy,
// the Kafka record is parked in the dead-letter queue, and the previous policy stays current.
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

func (c *Consumer) onReport(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var report eventv1.ErasureReport
	if err := rec.Decode(&report); err != nil {
		return err
	}
	done := report.GetStepDone()
	if done == nil {
		return kafka.Parkf("erasure report %T is newer than this build", report.GetEvent())
	}
	step := store.Step{Service: report.GetService(), Ref: done.GetRef(), Done: !done.GetMore(), Services: []string{},
		Refs: []string{}}
	var err error
	if step.ErasureID, err = uuid.Parse(report.GetErasureId()); err != nil {
		return kafka.Parkf("erasure_id: %w", err)
	}
	if step.WorkspaceID, err = uuid.Parse(report.GetWorkspaceId()); err != nil {
		return kafka.Parkf("workspace_id: %w", err)
	}
	if step.Service == "" {
		return kafka.Parkf("the report on erasure %s has no service", step.ErasureID)
	}
	for _, next := range done.GetNext() {
		step.Services, step.Refs = append(step.Services, next.GetService()), append(step.Refs, next.GetRef())
	}
	finished, err := c.store.ApplyStep(ctx, tx, step)
	switch {
	case errors.Is(err, store.ErrNoErasure), errors.Is(err, store.ErrErasureDone):
		return kafka.Skipf("apply report on erasure %s: %v", step.ErasureID, err)
	case err == nil && finished:
		slog.InfoContext(ctx, "erasure finished", "erasure_id", step.ErasureID)
	}
	return err
}
