package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Args are pgx.NamedArgs whose statement each connection reads once. pgx reads it anew with every query: 30 µs and forty allocations for
// an insert of a dozen columns, more than Postgres takes to run it.
type Args pgx.NamedArgs

// statement is one SQL text as the server wants it.
type statement struct {
	sql   string
	names []string // of $1, $2, …
}

// statements is where a connection keeps them: it goes with the connection, and only who holds that one reads it.
type statements map[string]statement

const (
	statementsKey = "ringfence.dev/libs/pg statements"
	// mostStatements bounds it, as pgx bounds what it has prepared.
	mostStatements = 512
)

// RewriteQuery puts the values in the order of the statement's places.
func (a Args) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	if conn == nil {
		return pgx.NamedArgs(a).RewriteQuery(ctx, conn, sql, args)
	}
	known, _ := conn.PgConn().CustomData()[statementsKey].(statements)
	read, ok := known[sql]
	if !ok {
		var err error
		if read, ok, err = a.read(ctx, sql); err != nil {
			return "", nil, err
		}
		if !ok {
			return pgx.NamedArgs(a).RewriteQuery(ctx, conn, sql, args)
		}
		if known == nil || len(known) >= mostStatements {
			known = statements{}
			conn.PgConn().CustomData()[statementsKey] = known
		}
		known[sql] = read
	}
	values := make([]any, len(read.names))
	for i, name := range read.names {
		values[i] = a[name] // nil when it is missing, as with pgx
	}
	return read.sql, values, nil
}

// read lets pgx read the statement with each name in place of its value. ok is false when a name has no value: pgx does not tell which.
func (a Args) read(ctx context.Context, sql string) (read statement, ok bool, err error) {
	names := make(pgx.NamedArgs, len(a))
	for name := range a {
		names[name] = name
	}
	numbered, places, err := names.RewriteQuery(ctx, nil, sql, nil)
	if err != nil {
		return read, false, err
	}
	read.sql = numbered
	for _, place := range places {
		name, given := place.(string)
		if !given {
			return read, false, nil
		}
		read.names = append(read.names, name)
	}
	return read, true, nil
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// ErrNotFound is the error of One and Value if there is no row.
var ErrNotFound = errors.New("not found")

// One returns the only row of a statement; columns are matched to fields by name. It returns
// ErrNotFound if there is no row, and pgx.ErrTooManyRows if there are several.
func One[T any](ctx context.Context, q Querier, sql string, args map[string]any) (T, error) {
	return one(ctx, q, sql, args, pgx.RowToStructByName[T])
}

// Value returns the only row of a statement that has one column. Its errors are those of One.
func Value[T any](ctx context.Context, q Querier, sql string, args map[string]any) (T, error) {
	return one(ctx, q, sql, args, pgx.RowTo[T])
}

// Many returns all rows of a statement; columns are matched to fields by name.
func Many[T any](ctx context.Context, q Querier, sql string, args map[string]any) ([]T, error) {
	return many(ctx, q, sql, args, pgx.RowToStructByName[T])
}

// Values returns all rows of a statement that has one column.
func Values[T any](ctx context.Context, q Querier, sql string, args map[string]any) ([]T, error) {
	return many(ctx, q, sql, args, pgx.RowTo[T])
}

func one[T any](
	ctx context.Context, q Querier, sql string, args Args, scan pgx.RowToFunc[T],
) (row T, err error) {
	rows, err := q.Query(ctx, sql, args)
	if err != nil {
		return row, err
	}
	row, err = pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, ErrNotFound
	}
	return row, err
}

func many[T any](ctx context.Context, q Querier, sql string, args Args, scan pgx.RowToFunc[T]) ([]T, error) {
	rows, err := q.Query(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// uuidCodec carries uuid.UUID as its 16 bytes. pgx by itself meets the interfaces of database/sql first: each id is printed, refused
// twice by the binary codec and parsed again on its way out, printed and parsed on its way in.
type uuidCodec struct{ pgtype.UUIDCodec }

func registerUUID(types *pgtype.Map) {
	id := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	types.RegisterType(id)
	types.RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: id}})
}

// PlanEncode knows uuid.UUID; the rest is pgx's.
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

// PlanScan knows *uuid.UUID; the rest is pgx's.
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type uuidPlan struct{}

// Encode appends the bytes.
func (uuidPlan) Encode(value any, buf []byte) ([]byte, error) {
	id, ok := value.(uuid.UUID)
	if !ok {
		return nil, fmt.Errorf("encode %T as a UUID", value)
	}
	return append(buf, id[:]...), nil
}

// Scan takes NULL for the nil UUID, as uuid.UUID itself does.
func (uuidPlan) Scan(src []byte, target any) error {
	id, ok := target.(*uuid.UUID)
	switch {
	case !ok:
		return fmt.Errorf("scan a UUID into %T", target)
	case src == nil:
		*id = uuid.Nil
	case len(src) != len(id):
		return fmt.Errorf("scan a UUID of %d bytes", len(src))
	default:
		copy(id[:], src)
	}
	return nil
}
