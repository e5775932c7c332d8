package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/replicas"
)

// maxReportAge is the age up to which List returns a report. Processes store their report five
// times within this time.
const maxReportAge = 10 * time.Second

// ReplicaReports stores the reports of the dialer processes.
type ReplicaReports struct{ pool *pgxpool.Pool }

// NewReplicaReports returns a store that uses the pool.
func NewReplicaReports(pool *pgxpool.Pool) *ReplicaReports { return &ReplicaReports{pool: pool} }

// Each process also deletes reports that are older than an hour, because a killed process cannot
// delete its report.
const putReport = `
WITH old AS (
	DELETE FROM replica_reports WHERE owner <> @owner AND reported_at < now() - interval '1 hour'
)
INSERT INTO replica_reports (owner, name, report) VALUES (@owner, @name, @report)
ON CONFLICT (owner) DO UPDATE SET name = excluded.name, report = excluded.report, reported_at = now()`

// Put stores the report of a process and replaces its previous report.
func (s *ReplicaReports) Put(ctx context.Context, owner uuid.UUID, name string, report replicas.Report) error {
	encoded, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if _, err := s.pool.Exec(ctx, putReport, pg.Args{"owner": owner, "name": name, "report": encoded}); err != nil {
		return fmt.Errorf("store report of %s: %w", name, err)
	}
	return nil
}

const removeReports = `DELETE FROM replica_reports WHERE owner = @owner`

// Remove deletes the report of a process.
func (s *ReplicaReports) Remove(ctx context.Context, owner uuid.UUID) error {
	if _, err := s.pool.Exec(ctx, removeReports, pg.Args{"owner": owner}); err != nil {
		return fmt.Errorf("remove report: %w", err)
	}
	return nil
}

const listReports = `
SELECT owner, name, reported_at, report FROM replica_reports
WHERE reported_at > now() - @fresh::interval ORDER BY name, owner`

// List returns the reports that are not older than ten seconds, sorted by name.
func (s *ReplicaReports) List(ctx context.Context) ([]replicas.StoredReport, error) {
	found, err := pg.Many[replicas.StoredReport](ctx, s.pool, listReports, pg.Args{"fresh": maxReportAge})
	if err != nil {
		return nil, fmt.Errorf("list reports: %w", err)
	}
	return found, nil
}

// Queue returns the numbers of queued requests and live calls.
func (s *ReplicaReports) Queue(ctx context.Context) (Depth, error) { return ReadDepth(ctx, s.pool) }

// Channels returns the number of live calls of each trunk, over all processes.
func (s *ReplicaReports) Channels(ctx context.Context) (map[uuid.UUID]int, error) {
	return Channels(ctx, s.pool)
}
