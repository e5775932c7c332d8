package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/libs/service"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// resealCommand encrypts the secrets of all subscriptions with the first key of SEALING_KEYS. It
// can run while replicas serve requests.
type resealCommand struct {
	store *store.Store
	// out receives the totals at the end: one line of text, or a JSON object if the caller is a
	// script (service.Scripted). progress receives a line of text after every progressInterval
	// secrets.
	out, progress io.Writer
	// batchSize is the number of secrets in one transaction; 0 means 100.
	batchSize int
	// progressInterval is the number of secrets between two lines of progress; 0 means 10,000.
	progressInterval int
}

const (
	resealBatch    = 100
	resealProgress = 10_000
)

// run encrypts again, with the first key of SEALING_KEYS, every secret that is sealed with another
// key. If run returns nil, the first key opens every secret. After an error, run can be called
// again. It then encrypts the remaining secrets.
func (w resealCommand) run(ctx context.Context) error {
	var all secretTotals
	all.unopened = map[store.Unopened]int{}
	next := cmp.Or(w.progressInterval, resealProgress)
	for after := uuid.Nil; ; {
		done, err := w.store.Reseal(ctx, after, cmp.Or(w.batchSize, resealBatch))
		all.add(done)
		if err == nil && done.Last == uuid.Nil {
			break
		}
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			all.interrupted = true
			// an error of print is ignored, because run returns the error that ended it
			_ = all.print(ctx, w.out)
			return interruptedError(ctx, err)
		}
		if after = done.Last; all.processed() >= next {
			fmt.Fprintf(w.progress, "progress: %s\n", all)
			next += cmp.Or(w.progressInterval, resealProgress)
		}
	}
	return errors.Join(all.print(ctx, w.out), all.unopenedError())
}

// interruptedError returns the error of an incomplete run. It must not wrap context.Canceled.
// Otherwise the program would exit with status 0, and the operator would remove the old key too
// early.
func interruptedError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("reseal interrupted: run it again")
	}
	return fmt.Errorf("reseal not completed: %w", err)
}

// secretTotals counts the secrets by result.
type secretTotals struct {
	resealed, current int
	unopened          map[store.Unopened]int
	interrupted       bool
}

// unopenedSecrets counts, for one key, the secrets that are sealed with this key but could not be
// opened.
type unopenedSecrets struct {
	Key     string `json:"key"`
	Missing bool   `json:"missing"` // true if SEALING_KEYS does not contain the key
	Secrets int    `json:"secrets"`
}

func (c secretTotals) byKey() []unopenedSecrets {
	found := []unopenedSecrets{}
	for one, n := range c.unopened {
		found = append(found, unopenedSecrets{one.Key, one.Missing, n})
	}
	slices.SortFunc(found, func(a, b unopenedSecrets) int { return cmp.Compare(a.Key, b.Key) })
	return found
}

func (c secretTotals) print(ctx context.Context, out io.Writer) (err error) {
	switch {
	case service.Scripted(ctx):
		return json.NewEncoder(out).
			Encode(map[string]any{"resealed": c.resealed, "current": c.current, "unopened": c.byKey(),
				"broken_off": c.interrupted})
	case c.interrupted:
		_, err = fmt.Fprintf(out, "not completed: %s; run the command again to continue\n", c)
	default:
		_, err = fmt.Fprintln(out, c)
	}
	return err
}

func (c *secretTotals) add(done store.Resealed) {
	c.resealed += done.Resealed
	c.current += done.Current
	for _, one := range done.Unopened {
		c.unopened[one]++
	}
}

func (c secretTotals) unopenedSecrets() (n int) {
	for _, some := range c.unopened {
		n += some
	}
	return n
}

func (c secretTotals) processed() int { return c.resealed + c.current + c.unopenedSecrets() }

func (c secretTotals) String() string {
	return fmt.Sprintf(
		"%d secrets resealed, %d already current, %d could not be opened",
		c.resealed,
		c.current,
		c.unopenedSecrets(),
	)
}

// unopenedError returns an error that names the keys of the unopened secrets, or nil if all secrets
// were opened.
func (c secretTotals) unopenedError() error {
	if c.unopenedSecrets() == 0 {
		return nil
	}
	var why []string
	for _, one := range c.byKey() {
		fault := "does not open them"
		if one.Missing {
			fault = "is not in SEALING_KEYS"
		}
		why = append(why, fmt.Sprintf("%d sealed with key %q, which %s", one.Secrets, one.Key, fault))
	}
	return fmt.Errorf("%d secrets could not be opened: %s", c.unopenedSecrets(), strings.Join(why, "; "))
}
