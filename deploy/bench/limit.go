package main

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
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/proto/eventv1"
)

// durable is one commit of a POST without an idempotency key that must be on disk.
type durable struct {
	// awaited: the POST does not answer before it.
	awaited bool
	writes  []write
}

// write is one prepared statement of the loop. An insert is a copy of the newest row that the stack wrote into the table, its
// fresh columns replaced; any other statement is spelled out, with the workspace-like id of the goroutine, the request id and the running
// number as $1, $2, $3 where it needs them.
type write struct {
	table string
	fresh map[string]value
	sql   string
	args  []value
}

// value is what stands in a column of a row of the loop's.
type value int

const (
	kept     value = iota // as in the copied row
	lane                  // one uuid a goroutine: its wallet
	request               // a uuid an iteration: the request id
	another               // a uuid a row
	number                // a phone number an iteration
	sequence              // a bigint an iteration
)

// awaitedCommits and expectedCommits are the length of the list below: what one POST on a quiet stack makes. More than these is a regression.
const (
	awaitedCommits  = 3
	expectedCommits = 6
)

// ofOnePost are the durable commits of one POST, in their order.
func ofOnePost() []durable {
	return []durable{
		{true, []write{ // pre-check: contact, answer and decision
			{table: "contacts_compliance.contacts", fresh: map[string]value{"id": another, "phone_e164": number}},
			{table: "contacts_compliance.prechecks", fresh: map[string]value{"call_request_id": request, "phone_e164": number}},
			{table: "contacts_compliance.decisions", fresh: map[string]value{"id": another, "call_request_id": request, "phone_e164": number}},
		}},
		{true, []write{ // hold: the wallet's row, the hold and the journal
			{table: "billing_wallet.holds", fresh: map[string]value{"request_id": request, "workspace_id": lane}},
			{table: "billing_wallet.transactions", fresh: map[string]value{"id": another, "request_id": request, "workspace_id": lane}},
			{table: "billing_wallet.wallets", args: []value{lane},
				sql: "UPDATE {} SET wallet_micro = wallet_micro - 1, held_micro = held_micro + 1 WHERE workspace_id = $1"},
		}},
		{true, []write{ // the request and its fact
			{table: "calls.call_requests", fresh: map[string]value{"id": request, "to_e164": number}},
			{table: "calls.outbox", fresh: map[string]value{"id": sequence, "event_id": another}},
		}},
		{false, []write{ // the relay
			{table: "calls.outbox", args: []value{sequence}, sql: "DELETE FROM {} WHERE id = $1"},
		}},
		{false, []write{ // the dialer takes it into its queue
			{table: "dialer.inbox", fresh: map[string]value{"event_id": another}},
			{table: "dialer.dial_queue", fresh: map[string]value{"call_request_id": request, "to_e164": number}},
		}},
		{false, []write{ // billing-wallet knows that its hold has a request
			{table: "billing_wallet.inbox", fresh: map[string]value{"event_id": another}},
			{table: "billing_wallet.holds", args: []value{request}, sql: "UPDATE {} SET confirmed_at = now() WHERE request_id = $1"},
		}},
	}
}

// copyOf names the loop's own copy of a table.
func copyOf(table string) string { return "bench." + strings.ReplaceAll(table, ".", "_") }

// makeCopies makes empty tables of the same columns, checks, indexes and storage as the ones that a POST writes.
func makeCopies(ctx context.Context, db *pgx.Conn, lanes int) error {
	if _, err := db.Exec(ctx, "DROP SCHEMA IF EXISTS bench CASCADE; CREATE SCHEMA bench"); err != nil {
		return err
	}
	var made []string
	for _, commit := range ofOnePost() {
		for _, w := range commit.writes {
			if slices.Contains(made, w.table) {
				continue
			}
			made = append(made, w.table)
			var options string
			err := db.QueryRow(ctx, "SELECT coalesce('WITH (' || array_to_string(reloptions, ', ') || ')', '') FROM pg_class WHERE oid = $1::text::regclass", w.table).Scan(&options)
			if err != nil {
				return fmt.Errorf("look at %s: %w", w.table, err)
			}
			if _, err := db.Exec(ctx, fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING ALL) %s", copyOf(w.table), w.table, options)); err != nil {
				return fmt.Errorf("copy %s: %w", w.table, err)
			}
		}
	}
	for n := range lanes {
		_, err := db.Exec(ctx, `INSERT INTO bench.billing_wallet_wallets (workspace_id, currency, wallet_micro, funding_micro)
			VALUES ($1, 'USD', 1000000000000, -1000000000000)`, laneID(n))
		if err != nil {
			return fmt.Errorf("make wallets: %w", err)
		}
	}
	return sampleFact(ctx, db)
}

// sampleFact puts a fact like a POST's into the copy of the outbox: the real one is empty when the stack is quiet.
func sampleFact(ctx context.Context, db *pgx.Conn) error {
	id := uuid.Must(uuid.NewV7())
	now := timestamppb.Now()
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL search_path = bench; CREATE TABLE bench.outbox (LIKE calls.outbox INCLUDING ALL)"); err != nil {
			return err
		}
		return outbox.Put(ctx, tx, outbox.Event{
			Topic: kafka.CallRequests, Key: id.String(), WorkspaceID: id,
			Message: &eventv1.CallRequestEvent{CallRequestId: id.String(), WorkspaceId: id.String(), OccurredAt: now,
				Event: &eventv1.CallRequestEvent_Requested{Requested: &eventv1.Requested{
					ToE164: "+14155550123", AgentId: id.String(), ContactId: id.String(), VariablesJson: []byte("{}"),
					ScheduledFor: now, MaxCallSeconds: 600, QueuedAt: now,
				}}},
		})
	})
}

// statement is a write, ready to be sent: the copied row's values in binary, and which of them are fresh.
type statement struct {
	name, sql string
	oids      []uint32
	values    [][]byte
	fresh     []value
}

// prepare reads the row to copy. The newest one is the one that the bench's own POSTs left.
func prepare(ctx context.Context, db *pgx.Conn, w write, name string) (statement, error) {
	s := statement{name: name, fresh: w.args, values: make([][]byte, len(w.args))}
	if w.sql != "" {
		s.sql = strings.ReplaceAll(w.sql, "{}", copyOf(w.table))
		return s, nil
	}
	source := w.table
	if source == "calls.outbox" {
		source = "bench.outbox"
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
		s.fresh = append(s.fresh, w.fresh[field.Name])
	}
	if !rows.Next() {
		return s, errors.Join(fmt.Errorf("%s is empty", source), rows.Err())
	}
	for _, raw := range rows.RawValues() {
		s.values = append(s.values, slices.Clone(raw))
	}
	s.sql = fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE VALUES (%s)", copyOf(w.table), strings.Join(columns, ", "), strings.Join(places, ", "))
	return s, nil
}

// loop makes the commits of POSTs on one connection.
type loop struct {
	conn    *pgconn.PgConn
	lane    uuid.UUID
	commits [][]statement
	formats []int16
}

// newLoop connects and prepares; awaitedOnly leaves out what a POST does not wait for.
func newLoop(ctx context.Context, url string, lane int, awaitedOnly bool) (*loop, error) {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	l := &loop{conn: db.PgConn(), lane: laneID(lane)}
	for i, commit := range ofOnePost() {
		if awaitedOnly && !commit.awaited {
			continue
		}
		var statements []statement
		for j, w := range commit.writes {
			s, err := prepare(ctx, db, w, fmt.Sprintf("bench_%d_%d", i, j))
			if err == nil {
				_, err = l.conn.Prepare(ctx, s.name, s.sql, s.oids)
			}
			if err != nil {
				return nil, fmt.Errorf("prepare %s: %w", w.table, err)
			}
			statements = append(statements, s)
		}
		l.commits = append(l.commits, statements)
	}
	l.formats = []int16{pgx.BinaryFormatCode}
	return l, nil
}

func (l *loop) close() { _ = l.conn.Close(context.Background()) }

// once makes the commits of the n-th POST, one after another, each in one round trip.
func (l *loop) once(ctx context.Context, n int64) error {
	id := newID()
	for _, statements := range l.commits {
		batch := &pgconn.Batch{}
		for _, s := range statements {
			batch.ExecPrepared(s.name, l.row(s, id, n), l.formats, l.formats)
		}
		if _, err := l.conn.ExecBatch(ctx, batch).ReadAll(); err != nil {
			return fmt.Errorf("commit of the bare loop: %w", err)
		}
	}
	return nil
}

func (l *loop) row(s statement, id []byte, n int64) [][]byte {
	row := slices.Clone(s.values)
	for i, fresh := range s.fresh {
		switch fresh {
		case kept:
		case lane:
			row[i] = l.lane[:]
		case request:
			row[i] = id
		case another:
			row[i] = newID()
		case number:
			row[i] = []byte(phoneNumber(n))
		case sequence:
			row[i] = binary.BigEndian.AppendUint64(nil, uint64(n))
		}
	}
	return row
}

// newID is the bytes of a UUIDv7, cheaply.
func newID() []byte {
	id := make([]byte, 16)
	_, _ = rand.Read(id[6:]) // never fails (crypto/rand)
	now := time.Now().UnixMilli()
	binary.BigEndian.PutUint32(id, uint32(now>>16))
	binary.BigEndian.PutUint16(id[4:], uint16(now))
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return id
}

func laneID(n int) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[8:], uint64(n+1))
	return id
}

// phoneNumber is the n-th of ten million, none of which is busy, silent or out of order.
func phoneNumber(n int64) string {
	return fmt.Sprintf("+1415%05d%02d", n/90%100_000, n%90)
}
