// Package imports opts out all numbers of a CSV list that an operator uploaded. It reads the parts
// of the upload as one file and stores each number once. Then it opts the numbers out in batches
// and writes one consent record for all of them. It keeps only one part and one batch in memory.
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
	// pollInterval is the time between two searches for an import that another replica has started
	// or has left unfinished.
	pollInterval = 2 * time.Second
	readBatch    = 10_000
	// applyBatch is the number of contacts that one transaction locks. It is small, so that the locks
	// end long before the timeout of a dial-time check.
	applyBatch = 2_000
	maxBadRows = 1_000
	// renewInterval is much shorter than the lifetime of a claim.
	renewInterval = 5 * time.Second
)

// Importer processes one import at a time. Each replica runs one importer.
type Importer struct {
	store *store.Store
	wake  chan struct{}
}

// New creates an importer.
func New(st *store.Store) *Importer { return &Importer{store: st, wake: make(chan struct{}, 1)} }

// Wake notifies the importer that an import was started. It never blocks.
func (im *Importer) Wake() {
	select {
	case im.wake <- struct{}{}:
	default:
	}
}

// Run runs until ctx ends. If an import was interrupted or its process died, the import continues
// after its last stored batch.
func (im *Importer) Run(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = im.RunNext(ctx); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "opt-out import interrupted", "error", err)
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

// RunNext processes the oldest import that is ready. more is false if there is none.
func (im *Importer) RunNext(ctx context.Context) (more bool, err error) {
	job, ok, err := im.store.ClaimImport(ctx)
	if err != nil || !ok {
		return false, err
	}
	started := time.Now()
	if job.Status == store.Reading {
		if err := im.readList(ctx, &job); err != nil {
			return false, fmt.Errorf("read import %s: %w", job.ID, err)
		}
	}
	if job.Status == store.Applying {
		if err := im.applyList(ctx, &job); err != nil {
			return false, fmt.Errorf("apply import %s: %w", job.ID, err)
		}
	}
	slog.InfoContext(ctx, "opt-out import finished", "workspace_id", job.WorkspaceID, "import_id", job.ID,
		"lines", job.Lines, "numbers", job.Numbers, "invalid_lines", job.Bad, "list_unchanged", job.SameAs != nil,
		"took", time.Since(started).Round(time.Millisecond).String())
	return true, nil
}

// readList stores each number of the list once. It also stores the lines without a valid number. If
// it was interrupted, the next call starts again at the first line and ignores numbers that are
// already stored.
func (im *Importer) readList(ctx context.Context, job *store.Import) error {
	file := &partsReader{ctx: ctx, store: im.store, id: job.ID, sum: sha256.New()}
	list := NewListReader(file)
	job.Lines, job.Bad = 0, 0
	bad, numbers := []BadLine{}, make([]string, 0, readBatch)
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
		number, badLine, err := list.Next()
		switch {
		case errors.Is(err, io.EOF):
			if err := flush(); err != nil {
				return err
			}
			return im.hashList(ctx, job, file.sum)
		case err != nil:
			return err
		case badLine != nil:
			if job.Bad++; len(bad) < maxBadRows {
				bad = append(bad, *badLine)
			}
		default:
			numbers = append(numbers, string(number))
		}
		if len(numbers) == readBatch || (badLine != nil && job.Bad%readBatch == 0) {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}

// hashList computes the digest of the list. Then it ends the phase in which the file is read.
func (im *Importer) hashList(ctx context.Context, job *store.Import, file hash.Hash) error {
	list, last := consentchain.NewListHash(), ""
	job.Numbers = 0
	for renewed := time.Now(); ; {
		if time.Since(renewed) > renewInterval {
			if err := im.store.RenewClaim(ctx, job); err != nil {
				return err
			}
			renewed = time.Now()
		}
		numbers, err := im.store.NumbersAfter(ctx, job.ID, last, readBatch)
		if err != nil {
			return err
		}
		for _, number := range numbers {
			list.Add(number)
			last = number
		}
		job.Numbers += int64(len(numbers))
		if len(numbers) < readBatch {
			break
		}
	}
	fileDigest, listDigest := hex.EncodeToString(file.Sum(nil)), list.Hex()
	job.FileSHA256, job.ListSHA256 = &fileDigest, &listDigest
	return im.store.FinishReading(ctx, job)
}

func (im *Importer) applyList(ctx context.Context, job *store.Import) error {
	for {
		numbers, err := im.store.NumbersAfter(ctx, job.ID, job.AppliedTo, applyBatch)
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

// partsReader reads the parts of an import as one file and computes its digest.
type partsReader struct {
	// ctx is a field because io.Reader.Read has no parameter for a context.
	ctx   context.Context //nolint:containedctx
	store *store.Store
	id    uuid.UUID
	sum   hash.Hash
	next  int
	rest  []byte
}

func (p *partsReader) Read(into []byte) (int, error) {
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
