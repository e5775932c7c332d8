package consentlog

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// HeadLogConfig configures the head log.
type HeadLogConfig struct {
	// Path is the path of the head log. The file is opened again for each write, so it can be
	// rotated at any time.
	Path string `env:"CONSENT_HEAD_LOG" help:"File to which the signed head of each chain of consent records is appended every minute. Store it where the database administrator cannot write. Replicas may share the file. If empty, no file is written."`
}

const (
	headLogInterval = time.Minute
	// maxTransaction is the longest expected transaction. A head becomes visible up to
	// maxTransaction after its moved_at.
	maxTransaction = 5 * time.Minute
	// Every 30th write reads all heads, because a person with access to the database can falsify
	// moved_at. The other writes read only heads with a new moved_at.
	writesPerFullScan = 30
)

// HeadLog appends the signed head of each chain to a file outside the database. If rows are removed
// from the database later, the file still proves that they existed. Each process numbers its lines
// under its own writer id.
type HeadLog struct {
	archive *store.Archive
	keys    *consentchain.Keys
	path    string
	writer  string
	line    int64
	writes  int
	since   time.Time
	// writtenSeqs contains the number of the last row of each chain that is in the file.
	writtenSeqs map[uuid.UUID]int64

	rollbacks prometheus.Counter
	errors    prometheus.Counter
}

// NewHeadLog creates a head log and registers its metrics.
func NewHeadLog(archive *store.Archive, keys *consentchain.Keys, cfg HeadLogConfig,
	metrics prometheus.Registerer) *HeadLog {
	w := &HeadLog{
		archive: archive, keys: keys, path: cfg.Path, writer: uuid.NewString(), writtenSeqs: map[uuid.UUID]int64{},
		rollbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_contacts_consent_chain_rollbacks_total",
			Help: "Times that a chain of consent records was shorter than before, so rows were removed in the database.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_contacts_consent_head_log_errors_total", Help: "Failed writes of the consent head log.",
		}),
	}
	metrics.MustRegister(w.rollbacks, w.errors)
	return w
}

// Run writes immediately, then every minute, and once more when ctx ends. Every replica runs it.
// After an error, Run tries again at the next interval.
func (w *HeadLog) Run(ctx context.Context) error {
	if w.path == "" {
		slog.WarnContext(ctx, "CONSENT_HEAD_LOG is not set: removal of the newest consent records cannot be detected")
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(headLogInterval)
	defer tick.Stop()
	for {
		if err := w.Write(ctx); err != nil && ctx.Err() == nil {
			w.errors.Inc()
			slog.ErrorContext(ctx, "consent head log not written", "error", err)
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			// the error is ignored, because the process writes every head after its next start
			_ = w.Write(last)
			return nil
		case <-tick.C:
		}
	}
}

// Write appends a line for each chain that grew since the last call, and syncs the file.
func (w *HeadLog) Write(ctx context.Context) error {
	file, err := os.OpenFile(w.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open head log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if end, err := file.Seek(0, io.SeekEnd); err != nil || end == 0 {
		// the file is new or was truncated, so the head of every chain must be written
		w.since, w.writtenSeqs = time.Time{}, map[uuid.UUID]int64{}
	}
	since := time.Time{}
	if w.writes++; w.writes%writesPerFullScan != 0 && !w.since.IsZero() {
		since = w.since.Add(-maxTransaction)
	}
	latest, at, lines := w.since, time.Now().UTC().Truncate(time.Microsecond), []byte{}
	err = w.archive.MovedHeads(ctx, since, func(head store.Head) error {
		if head.MovedAt.After(latest) {
			latest = head.MovedAt
		}
		before := w.writtenSeqs[head.WorkspaceID]
		if before == head.Seq {
			return nil
		}
		if head.Seq < before {
			w.rollbacks.Inc()
			slog.ErrorContext(ctx, "consent chain is shorter than before: run ringfence services verify",
				"workspace_id", head.WorkspaceID, "records", head.Seq, "previous_records", before)
		}
		w.writtenSeqs[head.WorkspaceID] = head.Seq
		w.line++
		line := consentchain.HeadLogLine{At: at, Writer: w.writer, Line: w.line, WorkspaceID: head.WorkspaceID,
			Count: head.Seq, Hash: hex.EncodeToString(head.MAC)}
		line.Sign(w.keys)
		text, err := json.Marshal(line)
		lines = append(append(lines, text...), '\n')
		return err
	})
	if err == nil && len(lines) > 0 {
		err = appendLines(file, lines)
	}
	if err != nil {
		// After this error, some of the lines may be in the file. All heads are written again under
		// a new writer id, because a gap in the line numbers would look like a missing line.
		w.writer, w.line, w.since, w.writtenSeqs = uuid.NewString(), 0, time.Time{}, map[uuid.UUID]int64{}
		return err
	}
	if w.since = latest; at.Before(latest) {
		w.since = at
	}
	return nil
}

// appendLines writes all lines with one call. It writes a line feed first if a crash truncated the
// last line.
func appendLines(file *os.File, lines []byte) error {
	last := make([]byte, 1)
	if end, err := file.Seek(0, io.SeekEnd); err == nil && end > 0 {
		if _, err := file.ReadAt(last, end-1); err == nil && last[0] != '\n' {
			lines = append([]byte{'\n'}, lines...)
		}
	}
	_, err := file.Write(lines)
	if err = errors.Join(err, file.Sync()); err != nil {
		return fmt.Errorf("append to head log: %w", err)
	}
	return nil
}
