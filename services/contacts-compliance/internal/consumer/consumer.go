// Package consumer listens to what other services report of erasures. It decides nothing itself.
package consumer

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// Consumer notes reports.
type Consumer struct{ store *store.Store }

// New makes a consumer.
func New(st *store.Store) *Consumer { return &Consumer{store: st} }

// Handlers is the table of topics.
func (c *Consumer) Handlers() inbox.Handlers {
	return inbox.Handlers{kafka.ErasureReports.Name: c.onReport}
}

func (c *Consumer) onReport(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
	var report eventv1.ErasureReport
	if err := rec.Decode(&report); err != nil {
		return err
	}
	told := report.GetStepDone()
	if told == nil {
		return kafka.Parkf("erasure report %T is newer than this build", report.GetEvent())
	}
	step := store.Step{Service: report.GetService(), Ref: told.GetRef(), Done: !told.GetMore(), Services: []string{}, Refs: []string{}}
	var err error
	if step.ErasureID, err = uuid.Parse(report.GetErasureId()); err != nil {
		return kafka.Parkf("erasure_id: %w", err)
	}
	if step.WorkspaceID, err = uuid.Parse(report.GetWorkspaceId()); err != nil {
		return kafka.Parkf("workspace_id: %w", err)
	}
	if step.Service == "" {
		return kafka.Parkf("a report on erasure %s names no service", step.ErasureID)
	}
	for _, next := range told.GetNext() {
		step.Services, step.Refs = append(step.Services, next.GetService()), append(step.Refs, next.GetRef())
	}
	inbox.Quiet(tx)
	finished, err := c.store.TakeStep(ctx, tx, step)
	switch {
	case errors.Is(err, store.ErrNoErasure), errors.Is(err, store.ErrErased):
		return kafka.Skipf("report on erasure %s: %v", step.ErasureID, err)
	case err == nil && finished:
		slog.InfoContext(ctx, "an erasure is carried out", "erasure_id", step.ErasureID)
	}
	return err
}
