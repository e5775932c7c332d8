// Package bare makes the durable commits that one deed of the product makes and nothing else: no HTTP, no Kafka, no reads, no lock that two of its
// goroutines want. It writes what the product writes, into copies of its tables, and is the limit that the product is measured against.

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

// Commit is one transaction that must be on disk.
type Commit struct {
	// Awaited: whoever asked for the deed has no answer before it.
	Awaited bool
	Writes  []Write
}

// Write is one prepared statement. An insert is a copy of the newest row that the stack wrote into the table, its fresh columns replaced; any
// other statement is spelled out, with {} for the copy of the table and {other.table} for that of another.
type Write struct {
	Table string
	Fresh map[string]Value
	SQL   string
	Args  []Value
	// Sample: the row to copy is the one that Copies.Sample put there, not the stack's.
	Sample bool
	// Create makes the table, with {} for its name, instead of copying the table of the product. With
	// it, SQL must be set. The table stays the same when the product changes.
	Create string
}

// Value is what stands in a column of a row, or in a place of a statement.
type Value int

// Values.
const (
	Kept     Value = iota // as in the copied row
	Lane                  // one uuid a goroutine: its wallet, its workspace
	Request               // a uuid a turn: the request id
	Call                  // a uuid a turn: the call id
	Another               // a uuid a row
	Number                // a phone number a turn
	Sequence              // a bigint a turn
)

// Turn is one deed.
type Turn struct {
	Request, Call []byte
	N             int64
	Number        string
}

// Copies are tables like the product's in a schema of their own.
type Copies struct {
	DB     *pgx.Conn
	Schema string
}

// Of names the copy of a table.
func (c Copies) Of(table string) string {
	return c.Schema + "." + strings.ReplaceAll(table, ".", "_")
}

// Make makes empty tables of the same columns, checks, indexes and storage as the ones that the commits write, without foreign keys.
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

// Sample puts a fact like the product's where it is copied from: the real outbox is empty when the stack is quiet.
func (c Copies) Sample(ctx context.Context, table string, topic kafka.Topic, fact proto.Message) error {
	id := uuid.Must(uuid.NewV7())
	return pgx.BeginFunc(ctx, c.DB, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL search_path = %[1]s; CREATE TABLE %[1]s.outbox (LIKE %[2]s INCLUDING ALL)", c.Schema, table)); err != nil {
			return err
		}
		return outbox.Put(ctx, tx, outbox.Event{Topic: topic, Key: id.String(), WorkspaceID: id, Message: fact})
	})
}

// Drop removes the copies; what is measured next pays for its own pages.
func (c Copies) Drop(ctx context.Context) error {
	_, err := c.DB.Exec(ctx, fmt.Sprintf("DROP SCHEMA %s CASCADE; CHECKPOINT", c.Schema))
	return err
}

// statement is a write, ready to be sent: the copied row's values in binary, and which of them are fresh.
type statement struct {
	name, sql string
	oids      []uint32
	values    [][]byte
	fresh     []Value
}

// prepare reads the row to copy. The newest one is the one that the bench's own calls left.
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

// Loop makes the commits on one connection. It is not safe for use by several goroutines.
type Loop struct {
	conn    *pgconn.PgConn
	lane    uuid.UUID
	commits [][]statement
	formats []int16
}

// NewLoop connects and prepares the commits; lane tells the goroutines apart.
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

// Close ends the connection.
func (l *Loop) Close() { _ = l.conn.Close(context.Background()) }

// Once makes all commits of a turn, one after another, each in one round trip.
func (l *Loop) Once(ctx context.Context, t Turn) error {
	for i := range l.commits {
		if err := l.Commit(ctx, i, t); err != nil {
			return err
		}
	}
	return nil
}

// Commit makes the i-th commit of a turn.
func (l *Loop) Commit(ctx context.Context, i int, t Turn) error {
	batch := &pgconn.Batch{}
	for _, s := range l.commits[i] {
		batch.ExecPrepared(s.name, l.row(s, t), l.formats, l.formats)
	}
	if _, err := l.conn.ExecBatch(ctx, batch).ReadAll(); err != nil {
		return fmt.Errorf("commit of the bare loop: %w", err)
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

// NewID is the bytes of a UUIDv7, cheaply.
func NewID() []byte {
	id := make([]byte, 16)
	_, _ = rand.Read(id[6:]) // never fails (crypto/rand)
	now := time.Now().UnixMilli()
	binary.BigEndian.PutUint32(id, uint32(now>>16))
	binary.BigEndian.PutUint16(id[4:], uint16(now))
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return id
}

// LaneID is the n-th goroutine's.
func LaneID(n int) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[8:], uint64(n+1))
	return id
}
