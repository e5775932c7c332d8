package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/service"
)

const (
	// dlqTimeout is how long a replay waits for the relay to publish parked records that are still in
	// the outbox.
	dlqTimeout = 5 * time.Second
	// clockMargin is the maximum difference between the clocks of the database server, which sets
	// parked_at, and of the brokers, which set the timestamps of dead letters.
	clockMargin = 10 * time.Minute
)

// ErrReplayRuns is the error of ReplayRecord while another ReplayRecord of the same consumer runs.
var ErrReplayRuns = errors.New("another replay runs")

// Replay applies the parked records of a topic, in the order of the dead-letter topic. parked is
// the number of records that are still parked. Errors that skip or park a record do not stop
// Replay.
//
// Replay can be repeated, and can run while the consumer runs. No record is applied twice: the
// transaction that applies a record also deletes its row in dead_letters.
func (c *Consumer) Replay(ctx context.Context, topic string) (applied, parked int, err error) {
	return c.replay(ctx, replayScope{topic: topic})
}

const keyOfParked = `
SELECT key FROM dead_letters WHERE consumer = @consumer AND topic = @topic AND event_id = @event_id`

// ReplayRecord applies a parked record together with the other parked records of its key, because
// the records of a key must be applied in the order of the DLQ. It reads the DLQ from the time at
// which the first of them was parked. It returns pg.ErrNotFound if the record is not parked, and
// ErrReplayRuns if another ReplayRecord of this consumer has not returned.
func (c *Consumer) ReplayRecord(ctx context.Context, topic string, eventID uuid.UUID) (applied, parked int, err error) {
	if !c.replaying.TryLock() {
		return 0, 0, ErrReplayRuns
	}
	defer c.replaying.Unlock()
	args := pgx.NamedArgs{"consumer": c.name, "topic": topic, "event_id": eventID}
	var key []byte
	err = c.pool.QueryRow(ctx, keyOfParked, args).Scan(&key)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, pg.ErrNotFound
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read the key of parked record %s: %w", eventID, err)
	}
	return c.replay(ctx, replayScope{topic: topic, oneKey: true, key: string(key)})
}

// replayScope selects parked records of a topic: all records, or those of one key.
type replayScope struct {
	topic  string
	oneKey bool
	key    string
}

func (s replayScope) contains(key string) bool { return !s.oneKey || key == s.key }

func (c *Consumer) replay(ctx context.Context, scope replayScope) (applied, parked int, err error) {
	if c.handlers[scope.topic] == nil {
		return 0, 0, fmt.Errorf("%s does not read topic %s", c.name, scope.topic)
	}
	r := c.newReplay(scope)
	for deadline := time.Now().Add(dlqTimeout); ; {
		var first time.Time
		parked, first, err = c.countParked(ctx, scope)
		if err != nil || parked == 0 {
			return applied, parked, err
		}
		if !scope.oneKey {
			r = c.newReplay(scope) // every pass over all keys begins at the start of the DLQ
		}
		n, err := r.pass(ctx, parked, first)
		applied += n
		if err != nil {
			return applied, parked - n, err
		}
		if n > 0 {
			deadline = time.Now().Add(dlqTimeout)
			continue // the consumer may have parked more records of these keys
		}
		if r.allRefused(parked) || time.Now().After(deadline) {
			if !r.allRefused(parked) {
				slog.Error("parked records are missing in the dead-letter topic",
					"consumer", c.name, "topic", scope.topic, "records", parked-len(r.refused))
			}
			return applied, parked, nil
		}
		pause(ctx, minBackoff)
		if ctx.Err() != nil {
			return applied, parked, ctx.Err()
		}
	}
}

const countParked = `
SELECT count(*), coalesce(min(parked_at), now()) FROM dead_letters
WHERE consumer = @consumer AND topic = @topic AND (NOT @one_key OR key_hash = sha256(@key::bytea))`

// countParked returns the number of parked records and the time at which the first was parked.
func (c *Consumer) countParked(ctx context.Context, scope replayScope) (n int, first time.Time, err error) {
	args := pgx.NamedArgs{"consumer": c.name, "topic": scope.topic, "one_key": scope.oneKey, "key": []byte(scope.key)}
	if err := c.pool.QueryRow(ctx, countParked, args).Scan(&n, &first); err != nil {
		return 0, first, fmt.Errorf("count parked records of %s: %w", scope.topic, err)
	}
	return n, first, nil
}

// pass reads the DLQ to its current end and returns the number of records that it applied. With one
// key, it returns before the end when no parked record of the key is left to try. The first pass
// then begins at the time first, and each later pass begins where the pass before it ended.
func (r *replay) pass(ctx context.Context, parked int, first time.Time) (applied int, err error) {
	c, topic := r.consumer, r.scope.topic
	client, err := kafka.NewClient(c.cfg, c.name+"-replay", nil)
	if err != nil {
		return 0, err
	}
	starts, ends, err := r.unread(ctx, kadm.NewClient(client.Client), first)
	client.Close()
	if err != nil || len(ends) == 0 {
		return 0, err
	}
	from := map[int32]kgo.Offset{}
	for number := range ends {
		from[number] = kgo.NewOffset().At(starts[number])
	}
	client, err = kafka.NewClient(c.cfg, c.name+"-replay", nil,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.dlqName(topic): from}))
	if err != nil {
		return 0, err
	}
	defer client.Close()

	before := r.applied
	for len(ends) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return r.applied - before, ctx.Err()
		}
		if err := fetches.Err(); err != nil {
			return r.applied - before, fmt.Errorf("read %s: %w", c.dlqName(topic), err)
		}
		for _, wire := range fetches.Records() {
			if err := r.one(ctx, wire); err != nil {
				return r.applied - before, err
			}
			r.next[wire.Partition] = wire.Offset + 1
			if end, open := ends[wire.Partition]; open && wire.Offset+1 >= end {
				delete(ends, wire.Partition)
			}
			if r.scope.oneKey && (r.applied-before >= parked || r.allRefused(parked-r.applied+before)) {
				return r.applied - before, nil
			}
		}
	}
	return r.applied - before, nil
}

// allRefused reports whether no parked record is left to try. After the first refusal of a record
// with a key, no later record of this key is tried.
func (r *replay) allRefused(parked int) bool {
	return parked <= len(r.refused) || r.scope.oneKey && r.blockedKeys[r.scope.key]
}

// unread returns, for each partition with records that the next pass reads, the offset at which it
// begins and the current end.
func (r *replay) unread(
	ctx context.Context, admin *kadm.Client, first time.Time,
) (starts, ends map[int32]int64, err error) {
	topic := r.consumer.dlqName(r.scope.topic)
	list := admin.ListStartOffsets
	if r.scope.oneKey {
		list = func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return admin.ListOffsetsAfterMilli(ctx, first.Add(-clockMargin).UnixMilli(), topics...)
		}
	}
	listedStarts, err := list(ctx, topic)
	if err == nil {
		err = listedStarts.Error()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list start offsets of %s: %w", topic, err)
	}
	listedEnds, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = listedEnds.Error()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list end offsets of %s: %w", topic, err)
	}
	starts, ends = map[int32]int64{}, map[int32]int64{}
	listedEnds.Each(func(end kadm.ListedOffset) {
		start, _ := listedStarts.Lookup(topic, end.Partition)
		if from := max(start.Offset, r.next[end.Partition]); end.Offset > from {
			starts[end.Partition], ends[end.Partition] = from, end.Offset
		}
	})
	return starts, ends, nil
}

// replay is the state of a replay: of one pass over all keys, or of all passes for one key.
type replay struct {
	consumer    *Consumer
	scope       replayScope
	applied     int
	blockedKeys map[string]bool // keys with a record that was parked again; their later records are not tried
	refused     map[uuid.UUID]bool
	next        map[int32]int64 // the offsets after the records that were read
}

func (c *Consumer) newReplay(scope replayScope) *replay {
	return &replay{consumer: c, scope: scope, blockedKeys: map[string]bool{}, refused: map[uuid.UUID]bool{},
		next: map[int32]int64{}}
}

var errNotParked = errors.New("not parked")

const unpark = `DELETE FROM dead_letters WHERE consumer = @consumer AND topic = @topic AND event_id = @event_id`

// insertReplayedID stores the id of a replayed record in inbox_late_events, which keeps ids as long
// as Kafka keeps dead letters. inbox_events would drop the day of the record earlier.
const insertReplayedID = `
INSERT INTO inbox_late_events (consumer, topic, event_id) VALUES (@consumer, @topic, @event_id) ON CONFLICT DO NOTHING`

func (r *replay) one(ctx context.Context, wire *kgo.Record) error {
	c := r.consumer
	letter, _ := kafka.Read(wire) // the header dlq_event_id contains the id, so a missing ce_id is ignored
	if id, err := uuid.Parse(letter.Headers[headerDLQEventID]); err == nil {
		letter.EventID = id
	}
	if !r.scope.contains(letter.Key) {
		return nil
	}
	if r.blockedKeys[letter.Key] {
		r.refused[letter.EventID] = true
		return nil
	}
	var onCommit func()
	err := pg.InTx(ctx, c.pool, func(tx pgx.Tx) (err error) {
		onCommit, err = r.apply(ctx, tx, letter)
		return err
	})
	var park *parkError
	switch {
	case err == nil:
		r.applied++
		if onCommit != nil {
			onCommit()
		}
	case errors.Is(err, errNotParked):
	case errors.As(err, &park):
		r.refused[letter.EventID] = true
		if letter.Key != "" {
			r.blockedKeys[letter.Key] = true
		}
		slog.Warn("record is still parked after the replay", "consumer", c.name, "topic", r.scope.topic,
			"event_id", letter.EventID,
			"error", park.reason)
	default:
		return fmt.Errorf("replay event %s of %s: %w", letter.EventID, r.scope.topic, err)
	}
	return nil
}

func (r *replay) apply(ctx context.Context, tx pgx.Tx, letter kafka.Record) (onCommit func(), err error) {
	c := r.consumer
	args := pgx.NamedArgs{"consumer": c.name, "topic": r.scope.topic, "event_id": letter.EventID}
	tag, err := tx.Exec(ctx, unpark, args)
	if err != nil {
		return nil, fmt.Errorf("unpark: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil, errNotParked // the record was already replayed
	}
	if _, err := tx.Exec(ctx, insertReplayedID, args); err != nil {
		return nil, fmt.Errorf("store event id: %w", err)
	}
	rec, err := originalRecord(letter)
	if err != nil {
		return nil, &parkError{&incoming{Record: letter}, err}
	}
	replayed := &incoming{Record: rec}
	outcome, err := c.handleRecords(ctx, tx, []*incoming{replayed})
	if err != nil {
		return nil, err
	}
	if outcome.Last != nil {
		if err := tx.SendBatch(ctx, outcome.Last).Close(); isPermanent(err) {
			return nil, &parkError{replayed, err}
		} else if err != nil {
			return nil, err
		}
	}
	return outcome.OnCommit, nil
}

// PutBack is the command `replay` of a service. It prints how many parked records of the topic were
// applied and how many are still parked. If topic is empty, it lists all parked records with their
// reasons. If service.Scripted is true, it prints JSON.
func (c *Consumer) PutBack(ctx context.Context, topic string, out io.Writer) error {
	if topic == "" {
		return c.list(ctx, out)
	}
	if c.handlers[topic] == nil {
		return fmt.Errorf("%s does not read topic %q; it reads %s", c.name, topic, strings.Join(slices.Sorted(maps.Keys(c.handlers)), ", "))
	}
	applied, parked, err := c.Replay(ctx, topic)
	if err != nil {
		return err
	}
	if service.Scripted(ctx) {
		return json.NewEncoder(out).Encode(map[string]any{"topic": topic, "applied": applied, "parked": parked})
	}
	_, err = fmt.Fprintf(out, "%s: %d records applied, %d still parked\n", topic, applied, parked)
	return err
}

// listedParked is the maximum number of listed records.
const listedParked = 1000

const listParked = `
SELECT topic, event_id, key, error, parked_at
FROM dead_letters
WHERE consumer = @consumer
ORDER BY topic, parked_at, event_id
LIMIT @most`

// ParkedRecord is a record that the consumer could not apply.
type ParkedRecord struct {
	Topic    string    `json:"topic"`
	ParkedAt time.Time `json:"parked_at"`
	EventID  uuid.UUID `json:"event_id"`
	Key      string    `json:"key"`
	// Error is the reason why the record was parked.
	Error string `json:"error"`
}

const newestParked = `
SELECT topic, event_id, key, error, parked_at
FROM dead_letters
WHERE consumer = @consumer
ORDER BY parked_at DESC, event_id
LIMIT @most`

// Parked returns at most the given number of parked records, the newest first.
func (c *Consumer) Parked(ctx context.Context, most int) ([]ParkedRecord, error) {
	return c.queryParked(ctx, newestParked, most)
}

func (c *Consumer) queryParked(ctx context.Context, query string, most int) ([]ParkedRecord, error) {
	rows, err := c.pool.Query(ctx, query, pgx.NamedArgs{"consumer": c.name, "most": most})
	if err != nil {
		return nil, fmt.Errorf("list parked records: %w", err)
	}
	found, err := pgx.AppendRows([]ParkedRecord{}, rows, func(row pgx.CollectableRow) (p ParkedRecord, err error) {
		var key []byte
		err = row.Scan(&p.Topic, &p.EventID, &key, &p.Error, &p.ParkedAt)
		p.Key, p.ParkedAt = string(key), p.ParkedAt.UTC()
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("list parked records: %w", err)
	}
	return found, nil
}

func (c *Consumer) list(ctx context.Context, out io.Writer) error {
	found, err := c.queryParked(ctx, listParked, listedParked)
	if err != nil {
		return err
	}
	if service.Scripted(ctx) {
		return json.NewEncoder(out).Encode(found)
	}
	// Errors of Fprint can be ignored, because Flush returns them.
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(found) == 0 {
		_, _ = fmt.Fprintln(lines, "nothing is parked")
	} else {
		_, _ = fmt.Fprintln(lines, "TOPIC\tPARKED AT\tEVENT\tKEY\tERROR")
	}
	for _, p := range found {
		_, _ = fmt.Fprintf(lines, "%s\t%s\t%s\t%.60q\t%.200q\n", p.Topic, p.ParkedAt.Format(time.RFC3339), p.EventID, p.Key, p.Error)
	}
	return lines.Flush()
}
