package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Args contains named arguments, like pgx.NamedArgs, but each connection parses a statement only
// once. pgx.NamedArgs parses the statement in every query. For an insert of a dozen columns, this
// takes 30 µs, longer than Postgres needs for the insert.
type Args pgx.NamedArgs

type statement struct {
	sql   string
	names []string // names of the arguments $1, $2, … in this order
}

// statements contains the statements that a connection has parsed. Only the goroutine that uses the
// connection accesses it.
type statements map[string]statement

const (
	statementsKey = "ringfence.dev/libs/pg statements"
	// maxStatements is the maximum number of parsed statements that a connection keeps.
	maxStatements = 512
)

// RewriteQuery implements pgx.QueryRewriter. A missing argument is nil, as with pgx.NamedArgs.
func (a Args) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	if conn == nil {
		return pgx.NamedArgs(a).RewriteQuery(ctx, conn, sql, args)
	}
	known, _ := conn.PgConn().CustomData()[statementsKey].(statements)
	read, ok := known[sql]
	if !ok {
		var err error
		if read, ok, err = a.parseStatement(ctx, sql); err != nil {
			return "", nil, err
		}
		if !ok {
			return pgx.NamedArgs(a).RewriteQuery(ctx, conn, sql, args)
		}
		if known == nil || len(known) >= maxStatements {
			known = statements{}
			conn.PgConn().CustomData()[statementsKey] = known
		}
		known[sql] = read
	}
	values := make([]any, len(read.names))
	for i, name := range read.names {
		values[i] = a[name]
	}
	return read.sql, values, nil
}

// parseStatement passes the statement to pgx, with the name of each argument as its value. So pgx
// returns the names in the order of $1, $2, …. ok is false if the statement contains a name without
// an argument.
func (a Args) parseStatement(ctx context.Context, sql string) (read statement, ok bool, err error) {
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

// ErrNotFound is returned by One and Value if there is no row.
var ErrNotFound = errors.New("not found")

// One returns the only row of a statement. It assigns columns to fields by name. It returns
// ErrNotFound if there is no row, and pgx.ErrTooManyRows if there are several rows.
func One[T any](ctx context.Context, q Querier, sql string, args map[string]any) (T, error) {
	return one(ctx, q, sql, args, pgx.RowToStructByName[T])
}

// Value returns the value of a statement with one row and one column. It returns the same errors as
// One.
func Value[T any](ctx context.Context, q Querier, sql string, args map[string]any) (T, error) {
	return one(ctx, q, sql, args, pgx.RowTo[T])
}

// Many returns all rows of a statement. It assigns columns to fields by name.
func Many[T any](ctx context.Context, q Querier, sql string, args map[string]any) ([]T, error) {
	return many(ctx, q, sql, args, pgx.RowToStructByName[T])
}

// Values returns the values of a statement with one column.
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

// uuidCodec encodes a uuid.UUID as 16 bytes. Without it, pgx would use the interfaces of
// database/sql, which convert every id to text and back.
type uuidCodec struct{ pgtype.UUIDCodec }

func registerUUID(types *pgtype.Map) {
	id := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	types.RegisterType(id)
	types.RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: id}})
}

// PlanEncode handles uuid.UUID and leaves other types to pgx.
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

// PlanScan handles *uuid.UUID and leaves other types to pgx.
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type uuidPlan struct{}

// Encode appends the 16 bytes of the id.
func (uuidPlan) Encode(value any, buf []byte) ([]byte, error) {
	id, ok := value.(uuid.UUID)
	if !ok {
		return nil, fmt.Errorf("encode %T as a UUID", value)
	}
	return append(buf, id[:]...), nil
}

// Scan reads NULL as the nil UUID, as the Scan method of uuid.UUID does.
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
