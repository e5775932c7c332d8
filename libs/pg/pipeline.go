package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pipeline is a transaction that needs few round trips. BEGIN is sent together with the first
// statements. The statements of QueueBatch are sent together with the next statements or with
// COMMIT. All statements run in the order of the calls. InPipeline begins and ends the transaction,
// so Begin, Commit and Rollback return an error.
type Pipeline struct {
	conn   *pgxpool.Conn
	queued pgx.Batch
	begun  bool
}

var (
	_ pgx.Tx = (*Pipeline)(nil)

	errEndsItself = errors.New("only InPipeline begins and ends its transaction")
)

// rollbackTime limits ROLLBACK. After that, the connection is closed.
const rollbackTime = 5 * time.Second

// InPipeline does the same as InTx, with a Pipeline. A transaction needs two round trips if it
// sends one batch and queues all other statements with QueueBatch.
func InPipeline(ctx context.Context, pool *pgxpool.Pool, f func(*Pipeline) error) error {
	for try := 1; ; try++ {
		err := runPipeline(ctx, pool, f)
		if err == nil || try == maxTries || !isConflict(err) {
			return err
		}
	}
}

func runPipeline(ctx context.Context, pool *pgxpool.Pool, f func(*Pipeline) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// If the transaction has not ended, the pool closes the released connection.
	defer conn.Release()
	tx, done := &Pipeline{conn: conn}, false
	defer func() {
		if !done && tx.begun {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
			defer cancel()
			_, _ = conn.Exec(ending, "ROLLBACK")
		}
	}()
	if err := f(tx); err != nil {
		return err
	}
	if tx.begun || len(tx.queued.QueuedQueries) > 0 {
		tx.queued.Queue("COMMIT").Exec(func(did pgconn.CommandTag) error {
			if did.String() == "ROLLBACK" {
				return pgx.ErrTxCommitRollback // f ignored the error of a statement
			}
			return nil
		})
		if err := tx.flush(ctx); err != nil {
			return err
		}
	}
	done = true
	return nil
}

// QueueBatch queues a batch. It is sent before the next statement of another method, or with
// COMMIT. If a statement of the batch fails, that next statement or the commit returns the error.
// The functions in the batch read the results.
func (p *Pipeline) QueueBatch(batch *pgx.Batch) {
	p.queued.QueuedQueries = append(p.queued.QueuedQueries, batch.QueuedQueries...)
}

// RunBatch sends the queued statements and the batch in one round trip. The functions in the batch
// read the results.
func (p *Pipeline) RunBatch(ctx context.Context, batch *pgx.Batch) error {
	p.QueueBatch(batch)
	return p.flush(ctx)
}

// flush sends BEGIN, unless it was already sent, and the queued statements.
func (p *Pipeline) flush(ctx context.Context) error {
	var batch pgx.Batch
	if !p.begun {
		batch.Queue("BEGIN")
		p.begun = true
	}
	batch.QueuedQueries = append(batch.QueuedQueries, p.queued.QueuedQueries...)
	p.queued = pgx.Batch{}
	if len(batch.QueuedQueries) == 0 {
		return nil
	}
	return p.conn.SendBatch(ctx, &batch).Close()
}

// Exec sends the queued statements, then the statement.
func (p *Pipeline) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := p.flush(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return p.conn.Exec(ctx, sql, args...)
}

// Query sends the queued statements, then the query.
func (p *Pipeline) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := p.flush(ctx); err != nil {
		return nil, err
	}
	return p.conn.Query(ctx, sql, args...)
}

// QueryRow sends the queued statements, then the query.
func (p *Pipeline) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := p.flush(ctx); err != nil {
		return noRow{err}
	}
	return p.conn.QueryRow(ctx, sql, args...)
}

// SendBatch sends the queued statements, then the batch.
func (p *Pipeline) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if err := p.flush(ctx); err != nil {
		return noResults{noRow{err}}
	}
	return p.conn.SendBatch(ctx, batch)
}

// CopyFrom sends the queued statements, then copies the rows.
func (p *Pipeline) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := p.flush(ctx); err != nil {
		return 0, err
	}
	return p.conn.CopyFrom(ctx, table, columns, rows)
}

// Prepare sends the queued statements, and then prepares the statement on the connection.
func (p *Pipeline) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := p.flush(ctx); err != nil {
		return nil, err
	}
	return p.conn.Conn().Prepare(ctx, name, sql)
}

// Conn returns the connection. Statements that the caller sends on it run before the queued
// statements.
func (p *Pipeline) Conn() *pgx.Conn { return p.conn.Conn() }

// LargeObjects is not supported.
func (p *Pipeline) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

// Begin is not supported.
func (p *Pipeline) Begin(context.Context) (pgx.Tx, error) { return nil, errEndsItself }

// Commit is not supported, because InPipeline commits the transaction.
func (p *Pipeline) Commit(context.Context) error { return errEndsItself }

// Rollback is not supported. To roll back, return an error from the function that InPipeline runs.
func (p *Pipeline) Rollback(context.Context) error { return errEndsItself }

// noRow and noResults return the error of sending the queued statements.
type noRow struct{ err error }

func (n noRow) Scan(...any) error { return n.err }

type noResults struct{ noRow }

func (n noResults) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, n.err }

func (n noResults) Query() (pgx.Rows, error) { return nil, n.err }

func (n noResults) QueryRow() pgx.Row { return n.noRow }

func (n noResults) Close() error { return n.err }

func (n noResults) Tx() pgx.Tx { return nil }
