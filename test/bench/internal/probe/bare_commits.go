// A baseline loop makes the commits of one operation, for example one POST, without the product: it
// uses no HTTP, no Kafka, no reads and no shared lock. The product cannot be faster than this loop.

package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
)

// Commit is one durable transaction.
type Commit struct {
	// Awaited is true if the client gets its response after this commit.
	Awaited bool
	Writes  []Write
}

// Write is one prepared statement. In SQL, {} is the name of the copy of Table, and {other.table}
// is the name of the copy of other.table.
type Write struct {
	Table string
	// If SQL is empty, the statement copies the newest row of the table. Fresh contains the new values
	// of the columns that differ in the copied row.
	Fresh map[string]Value
	SQL   string
	Args  []Value
	// Sample is true if the insert copies the row of Copies.Sample. Otherwise it copies a row of
	// the stack.
	Sample bool
	// Create is the statement that creates the table, with {} for the table's name. If it is empty,
	// the table is a copy of the product's table. If it is set, SQL must be set too.
	Create string
}

// Value is the value of a column or of a parameter.
type Value int

// The kinds of values.
const (
	Kept     Value = iota // the value in the copied row
	Lane                  // a UUID for each goroutine (lane), for example the id of its wallet or workspace
	Request               // a UUID for each operation: the request id
	Call                  // a UUID for each operation: the call id
	Another               // a UUID for each row
	Number                // a phone number for each operation
	Sequence              // a bigint for each operation
)

// Turn contains the values of one operation, that is, of one iteration of the loop.
type Turn struct {
	Request, Call []byte
	N             int64
	Number        string
}

// Copies are copies of the product's tables in another schema.
type Copies struct {
	DB     *pgx.Conn
	Schema string
}

// Of returns the name of the copy of a table.
func (c Copies) Of(table string) string {
	return c.Schema + "." + strings.ReplaceAll(table, ".", "_")
}

// Make creates empty tables with the same columns, checks, indexes and storage as the tables of the
// commits, without foreign keys.
func (c Copies) Make(ctx context.Context, commits []Commit) error {
	if _, err := c.DB.Exec(ctx, fmt.Sprintf("DROP SCHEMA IF EXISTS %[1]s CASCADE; CREATE SCHEMA %[1]s", c.Schema)); err != nil {
		return err
	}
	var made []string
	for _, commit := range commits {
		for _, w := range commit.Writes {
			if slices.Contains(made, w.Table) {
				continue
			}
			made = append(made, w.Table)
			if w.Create != "" {
				if _, err := c.DB.Exec(ctx, strings.ReplaceAll(w.Create, "{}", c.Of(w.Table))); err != nil {
					return fmt.Errorf("create %s: %w", w.Table, err)
				}
				continue
			}
			var options string
			err := c.DB.QueryRow(ctx, "SELECT coalesce('WITH (' || array_to_string(reloptions, ', ') || ')', '') FROM pg_class WHERE oid = $1::text::regclass", w.Table).Scan(&options)
			if err != nil {
				return fmt.Errorf("look at %s: %w", w.Table, err)
			}
			if _, err := c.DB.Exec(ctx, fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING ALL) %s", c.Of(w.Table), w.Table, options)); err != nil {
				return fmt.Errorf("copy %s: %w", w.Table, err)
			}
		}
	}
	return nil
}

// Sample inserts an outbox row in the format of the product. The baseline loop copies this row,
// because the outbox of an idle stack is empty.
func (c Copies) Sample(ctx context.Context, table string, topic kafka.Topic, fact proto.Message) error {
	id := uuid.Must(uuid.NewV7())
	return pgx.BeginFunc(ctx, c.DB, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL search_path = %[1]s; CREATE TABLE %[1]s.outbox (LIKE %[2]s INCLUDING ALL)", c.Schema, table)); err != nil {
			return err
		}
		return outbox.Put(ctx, tx, outbox.Event{Topic: topic, Key: id.String(), WorkspaceID: id, Message: fact})
	})
}

// Drop deletes the copies and their schema.
func (c Copies) Drop(ctx context.Context) error {
	_, err := c.DB.Exec(ctx, fmt.Sprintf("DROP SCHEMA %s CASCADE; CHECKPOINT", c.Schema))
	return err
}

// statement is a prepared statement with the binary values of a sample row. fresh lists the values
// that are replaced before each execution.
type statement struct {
	name, sql string
	oids      []uint32
	values    [][]byte
	fresh     []Value
}

// prepare prepares the statement of a write. For an insert it also reads the newest row of the
// table, which is the row to copy.
func (c Copies) prepare(ctx context.Context, db *pgx.Conn, w Write, name string) (statement, error) {
	s := statement{name: name, fresh: w.Args, values: make([][]byte, len(w.Args))}
	if w.SQL != "" {
		s.sql = strings.ReplaceAll(w.SQL, "{}", c.Of(w.Table))
		for {
			before, rest, found := strings.Cut(s.sql, "{")
			table, after, closed := strings.Cut(rest, "}")
			if !found || !closed {
				return s, nil
			}
			s.sql = before + c.Of(table) + after
		}
	}
	source := w.Table
	if w.Sample {
		source = c.Schema + ".outbox"
	}
	rows, err := db.Query(ctx, fmt.Sprintf("SELECT * FROM %s ORDER BY ctid DESC LIMIT 1", source), pgx.QueryResultFormats{pgx.BinaryFormatCode})
	if err != nil {
		return s, err
	}
	defer rows.Close()
	var columns, places []string
	for _, field := range rows.FieldDescriptions() {
		columns = append(columns, field.Name)
		places = append(places, fmt.Sprintf("$%d", len(columns)))
		s.oids = append(s.oids, field.DataTypeOID)
		s.fresh = append(s.fresh, w.Fresh[field.Name])
	}
	if !rows.Next() {
		return s, errors.Join(fmt.Errorf("%s is empty", source), rows.Err())
	}
	for _, raw := range rows.RawValues() {
		s.values = append(s.values, slices.Clone(raw))
	}
	s.sql = fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE VALUES (%s)", c.Of(w.Table), strings.Join(columns, ", "), strings.Join(places, ", "))
	return s, nil
}

// Loop executes the commits on one connection. Only one goroutine can use it.
type Loop struct {
	conn    *pgconn.PgConn
	lane    uuid.UUID
	commits [][]statement
	formats []int16
}

// NewLoop opens a connection and prepares the commits. lane is the number of the goroutine.
func (c Copies) NewLoop(ctx context.Context, url string, lane int, commits []Commit) (*Loop, error) {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	l := &Loop{conn: db.PgConn(), lane: LaneID(lane), formats: []int16{pgx.BinaryFormatCode}}
	for i, commit := range commits {
		var statements []statement
		for j, w := range commit.Writes {
			s, err := c.prepare(ctx, db, w, fmt.Sprintf("bench_%d_%d", i, j))
			if err == nil {
				_, err = l.conn.Prepare(ctx, s.name, s.sql, s.oids)
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("prepare %s: %w", w.Table, err), l.conn.Close(ctx))
			}
			statements = append(statements, s)
		}
		l.commits = append(l.commits, statements)
	}
	return l, nil
}

func (l *Loop) Close() { _ = l.conn.Close(context.Background()) }

// Once makes all commits of one operation in order, with one network round trip for each statement.
func (l *Loop) Once(ctx context.Context, t Turn) error {
	for i := range l.commits {
		if err := l.Commit(ctx, i, t); err != nil {
			return err
		}
	}
	return nil
}

// Commit makes the i-th commit of an operation.
func (l *Loop) Commit(ctx context.Context, i int, t Turn) error {
	batch := &pgconn.Batch{}
	for _, s := range l.commits[i] {
		batch.ExecPrepared(s.name, l.row(s, t), l.formats, l.formats)
	}
	if _, err := l.conn.ExecBatch(ctx, batch).ReadAll(); err != nil {
		return fmt.Errorf("commit of the baseline loop: %w", err)
	}
	return nil
}

func (l *Loop) row(s statement, t Turn) [][]byte {
	row := slices.Clone(s.values)
	for i, fresh := range s.fresh {
		switch fresh {
		case Kept:
		case Lane:
			row[i] = l.lane[:]
		case Request:
			row[i] = t.Request
		case Call:
			row[i] = t.Call
		case Another:
			row[i] = NewID()
		case Number:
			row[i] = []byte(t.Number)
		case Sequence:
			row[i] = binary.BigEndian.AppendUint64(nil, uint64(t.N))
		}
	}
	return row
}

// NewID returns the bytes of a UUIDv7.
func NewID() []byte {
	id := make([]byte, 16)
	_, _ = rand.Read(id[6:]) // crypto/rand never fails
	now := time.Now().UnixMilli()
	binary.BigEndian.PutUint32(id, uint32(now>>16))
	binary.BigEndian.PutUint16(id[4:], uint16(now))
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return id
}

// LaneID returns the UUID of the n-th goroutine.
func LaneID(n int) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[8:], uint64(n+1))
	return id
}
