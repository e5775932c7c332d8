package replicas

import (
	"context"
	"log/slog"
	"time"
)

const (
	reportInterval = 2 * time.Second
	// writeTimeout limits storing and removing a report.
	writeTimeout = 2 * time.Second
)

// Job stores the report of this process every two seconds.
type Job struct {
	report func() Report
	put    func(context.Context, Report) error
	remove func(context.Context) error
}

// NewJob returns a job. It calls report to create a report, put to store it, and remove to delete
// it when the job ends.
func NewJob(report func() Report, put func(context.Context, Report) error, remove func(context.Context) error) *Job {
	return &Job{report: report, put: put, remove: remove}
}

// Run stores reports until ctx ends. Then it removes the report.
func (j *Job) Run(ctx context.Context) error {
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	for {
		if err := j.storeReport(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "status report of this replica not stored", "error", err)
		}
		select {
		case <-ctx.Done():
			j.removeReport(ctx)
			return nil
		case <-ticker.C:
		}
	}
}

func (j *Job) storeReport(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return j.put(ctx, j.report())
}

func (j *Job) removeReport(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := j.remove(ctx); err != nil {
		slog.WarnContext(ctx, "status report of this replica not deleted", "error", err)
	}
}
