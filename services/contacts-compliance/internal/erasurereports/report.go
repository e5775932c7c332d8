// Package erasurereports completes the erasure of a person's data across all services. It applies
// the reports of the other services, and publishes an erasure again until every service has
// reported that its data is erased. Store.Erase of package store starts an erasure: it erases the
// contact and publishes the event `erased`.
package erasurereports

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// ApplyReport applies a record of erasure-reports.v1: it marks the reported step of an erasure as
// done and adds the steps that follow. A report on an unknown or finished erasure is skipped.
func ApplyReport(ctx context.Context, st *store.Store, tx pgx.Tx, rec kafka.Record) error {
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
	finished, err := st.ApplyStep(ctx, tx, step)
	switch {
	case errors.Is(err, store.ErrNoErasure), errors.Is(err, store.ErrErasureDone):
		return kafka.Skipf("apply report on erasure %s: %v", step.ErasureID, err)
	case err == nil && finished:
		slog.InfoContext(ctx, "erasure finished", "erasure_id", step.ErasureID)
	}
	return err
}
