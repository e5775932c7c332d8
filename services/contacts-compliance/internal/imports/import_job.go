// Package importing opts out everybody on a list that an operator sent: it reads the list's parts as one file, keeps each number once, opts
// them out a few thousand at a time, and writes one record of all. It holds one part and one batch in memory, however long the list is.

package imports

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

const (
	every    = 2 * time.Second // how soon an import is seen that another replica was asked to start, or left behind
	readSome = 10_000
	// applySome holds the contacts' locks for a small fraction of a gate's patience.
	applySome = 2_000
	mostBad   = 1_000
	// tend is a fraction of how long an import is ours without a word.
	tend = 5 * time.Second
)

// Importer works on one import at a time; replicas take others.
type Importer struct {
	store *store.Store
	wake  chan struct{}
}

// New makes an importer.
func New(st *store.Store) *Importer { return &Importer{store: st, wake: make(chan struct{}, 1)} }

// Wake says that an import was started; it never blocks.
func (im *Importer) Wake() {
	select {
	case im.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. What it leaves half done, or a process that died left, goes on from its last batch.
func (im *Importer) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = im.Next(ctx); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "an import stopped; it goes on soon", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-im.wake:
		case <-tick.C:
		}
	}
}

// Next brings the oldest import that waits to its end; more is false when none does.
func (im *Importer) Next(ctx context.Context) (more bool, err error) {
	job, ok, err := im.store.ClaimImport(ctx)
	if err != nil || !ok {
		return false, err
	}
	began := time.Now()
	if job.Status == store.Reading {
		if err := im.read(ctx, &job); err != nil {
			return false, fmt.Errorf("read import %s: %w", job.ID, err)
		}
	}
	if job.Status == store.Applying {
		if err := im.apply(ctx, &job); err != nil {
			return false, fmt.Errorf("apply import %s: %w", job.ID, err)
		}
	}
	slog.InfoContext(ctx, "import done", "workspace_id", job.WorkspaceID, "import", job.ID, "lines", job.Lines, "numbers", job.Numbers, "bad", job.Bad,
		"again", job.SameAs != nil, "took", time.Since(began).Round(time.Millisecond).String())
	return true, nil
}

// read keeps every number of the list once, and what is bad about its other lines. A reading that was broken off begins again: what it kept it meets.
func (im *Importer) read(ctx context.Context, job *store.Import) error {
	file := &parts{ctx: ctx, store: im.store, id: job.ID, sum: sha256.New()}
	list := NewReader(file)
	job.Lines, job.Bad = 0, 0
	bad, numbers := []Bad{}, make([]string, 0, readSome)
	flush := func() (err error) {
		job.Lines = list.Line()
		if job.BadRows, err = json.Marshal(bad); err != nil {
			return fmt.Errorf("encode bad rows: %w", err)
		}
		err = im.store.AddNumbers(ctx, job, numbers)
		numbers = numbers[:0]
		return err
	}
	for {
		number, wrong, err := list.Next()
		switch {
		case errors.Is(err, io.EOF):
			if err := flush(); err != nil {
				return err
			}
			return im.settle(ctx, job, file.sum)
		case err != nil:
			return err
		case wrong != nil:
			if job.Bad++; len(bad) < mostBad {
				bad = append(bad, *wrong)
			}
		default:
			numbers = append(numbers, string(number))
		}
		if len(numbers) == readSome || (wrong != nil && job.Bad%readSome == 0) {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}

// settle sums up the file and the list.
func (im *Importer) settle(ctx context.Context, job *store.Import, file hash.Hash) error {
	list, last := consentchain.NewList(), ""
	job.Numbers = 0
	for tended := time.Now(); ; {
		if time.Since(tended) > tend {
			if err := im.store.Tend(ctx, job); err != nil {
				return err
			}
			tended = time.Now()
		}
		numbers, err := im.store.NumbersAfter(ctx, job.ID, last, readSome)
		if err != nil {
			return err
		}
		for _, number := range numbers {
			list.Add(number)
			last = number
		}
		job.Numbers += int64(len(numbers))
		if len(numbers) < readSome {
			break
		}
	}
	of, in := hex.EncodeToString(file.Sum(nil)), list.Hex()
	job.FileSHA256, job.ListSHA256 = &of, &in
	return im.store.SettleList(ctx, job)
}

func (im *Importer) apply(ctx context.Context, job *store.Import) error {
	for {
		numbers, err := im.store.NumbersAfter(ctx, job.ID, job.AppliedTo, applySome)
		if err != nil {
			return err
		}
		if len(numbers) == 0 {
			return im.store.FinishImport(ctx, job)
		}
		if err := im.store.ApplyNumbers(ctx, job, numbers); err != nil {
			return err
		}
	}
}

// parts are an import's pieces as one file, summed up as it is read.
type parts struct {
	ctx   context.Context //nolint:containedctx // io.Reader has no place for it, and the reader lives no longer than the reading
	store *store.Store
	id    uuid.UUID
	sum   hash.Hash
	next  int
	rest  []byte
}

// Read is io.Reader's.
func (p *parts) Read(into []byte) (int, error) {
	for len(p.rest) == 0 {
		p.next++
		content, ok, err := p.store.Part(p.ctx, p.id, p.next)
		if err != nil {
			return 0, err
		}
		if !ok {
			return 0, io.EOF
		}
		p.sum.Write(content)
		p.rest = content
	}
	n := copy(into, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
