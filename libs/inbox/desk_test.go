package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pgtest"
)

// deskBench settles bundles by hand; the handler tells in which transaction, and in which order, each record was applied.
type deskBench struct {
	*Consumer
	mu      sync.Mutex
	applied []string
	tx      map[string]int64
}

func newDeskBench(t *testing.T, sick func(value string) error) *deskBench {
	b := &deskBench{tx: map[string]int64{}}
	pool := pgtest.New(t, "inbox_test", Migrations, outbox.Migrations)
	b.Consumer = NewConsumer("dialer", kafka.Config{}, pool, Handlers{kafka.CallRequests.Name: func(ctx context.Context, tx pgx.Tx, rec kafka.Record) error {
		var id int64
		if err := tx.QueryRow(ctx, "SELECT pg_current_xact_id()::text::bigint").Scan(&id); err != nil {
			return fmt.Errorf("name the transaction: %w", err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.applied, b.tx[string(rec.Value)] = append(b.applied, string(rec.Value)), id
		return sick(string(rec.Value))
	}}, nil, nil)
	return b
}

// bundle of partition n has one record, named after it.
func (b *deskBench) bundle(ctx context.Context, n int32) *bundle {
	rec := kafka.Record{Topic: kafka.CallRequests.Name, Partition: n, EventID: uuid.New(), Value: fmt.Appendf(nil, "p%d", n)}
	return &bundle{ctx: ctx, all: []delivery{{Record: rec}}, settled: make(chan error, 1)}
}

// occupied keeps the desk from serving until free is called: every slot is taken.
func (b *deskBench) occupied() (free func()) {
	for range cap(b.slots) {
		b.slots <- struct{}{}
	}
	return func() {
		for range cap(b.slots) {
			<-b.slots
		}
	}
}

func TestDesk_PartitionsThatComeTogetherShareACommit(t *testing.T) {
	t.Parallel()
	b := newDeskBench(t, func(string) error { return nil })
	free := b.occupied()
	var all []*bundle
	for _, n := range []int32{7, 2, 5} {
		all = append(all, b.bundle(t.Context(), n))
		b.desk.bring(all[len(all)-1])
	}
	free()
	for _, one := range all {
		if err := <-one.settled; err != nil {
			t.Fatal(err)
		}
	}
	if b.tx["p7"] == 0 {
		t.Errorf("transactions: p7 = 0, want more")
	}
	if b.tx["p7"] != b.tx["p2"] {
		t.Errorf("transactions: p7 = %v, want %v", b.tx["p7"], b.tx["p2"])
	}
	if b.tx["p2"] != b.tx["p5"] {
		t.Errorf("transactions: p2 = %v, want %v", b.tx["p2"], b.tx["p5"])
	}
	if got := fmt.Sprint(b.applied); got != "[p2 p5 p7]" {
		t.Errorf("applied %s, want the order of the partitions", got)
	}
}

func TestDesk_OnePartitionsFaultIsNotTheOthers(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	b := newDeskBench(t, func(value string) error {
		if value == "p5" {
			return away
		}
		return nil
	})
	free := b.occupied()
	gone, lose := context.WithCancel(t.Context())
	lost, sick, well := b.bundle(gone, 1), b.bundle(t.Context(), 5), b.bundle(t.Context(), 2)
	lose()
	for _, one := range []*bundle{lost, sick, well} {
		b.desk.bring(one)
	}
	free()
	if err := <-lost.settled; !errors.Is(err, context.Canceled) {
		t.Errorf("a partition that is lost: %v, want canceled", err)
	}
	if err := <-sick.settled; !errors.Is(err, away) {
		t.Errorf("the sick one: %v, want its fault", err)
	}
	if err := <-well.settled; err != nil {
		t.Errorf("a healthy one: %v", err)
	}
	var kept int
	if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM inbox").Scan(&kept); err != nil {
		t.Errorf("QueryRow: %v", err)
	} else if kept != 1 {
		t.Errorf("kept = %v, want 1", kept)
	}
}

func TestDesk_WhatWasTakenBackIsNotBegun(t *testing.T) {
	t.Parallel()
	b := newDeskBench(t, func(string) error { return nil })
	free := b.occupied()
	back, stays := b.bundle(t.Context(), 1), b.bundle(t.Context(), 2)
	b.desk.bring(back)
	b.desk.bring(stays)
	back.begun.Store(true) // its worker stops
	free()
	if err := <-stays.settled; err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := fmt.Sprint(b.applied); got != "[p2]" {
		t.Errorf("applied %s, want what was not taken back", got)
	}
}
