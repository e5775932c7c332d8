// Package resealing owns the rotation of the keys that secrets at rest lie under: it walks all subscriptions once and brings each
// secret under the first key, beside the serving replicas. What sealing is, is libs/seal's; how a secret is put in place of another, the store's.
package resealing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Walk is one pass over all secrets.
type Walk struct {
	Store *store.Store
	// Out is told of the progress and of the end.
	Out io.Writer
	// Batch is how many secrets one transaction takes; zero: 100. Every is after how many a line tells of the progress; zero: 10 000.
	Batch, Every int
}

const (
	batch = 100
	every = 10_000
)

// Run seals under the first key what lies under another. Its error says that some could not be opened, that the database failed or that
// ctx ended: what was resealed stays, and another Run goes on. Nil says that the first key alone opens every secret that was there.
func (w Walk) Run(ctx context.Context) error {
	var all count
	all.unopened = map[store.Unopened]int{}
	next := cmp.Or(w.Every, every)
	for after := uuid.Nil; ; {
		done, err := w.Store.Reseal(ctx, after, cmp.Or(w.Batch, batch))
		all.add(done)
		if err == nil && done.Last == uuid.Nil {
			break
		}
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(w.Out, "broken off: %s; run it again, it goes on where it stopped\n", all)
			return brokenOff(ctx, err)
		}
		if after = done.Last; all.seen() >= next {
			fmt.Fprintf(w.Out, "so far: %s\n", all)
			next += cmp.Or(w.Every, every)
		}
	}
	fmt.Fprintln(w.Out, all)
	return all.fault()
}

// brokenOff hides that a context ended: to the frame of a service that is a good end, and whoever takes the old key away next must not
// read it as one.
func brokenOff(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("resealing was interrupted: run it again")
	}
	return fmt.Errorf("resealing was broken off: %w", err)
}

// count is what became of the secrets.
type count struct {
	fresh, current int
	unopened       map[store.Unopened]int
}

func (c *count) add(done store.Resealed) {
	c.fresh += done.Fresh
	c.current += done.Current
	for _, one := range done.Unopened {
		c.unopened[one]++
	}
}

func (c count) lost() (n int) {
	for _, some := range c.unopened {
		n += some
	}
	return n
}

func (c count) seen() int { return c.fresh + c.current + c.lost() }

func (c count) String() string {
	return fmt.Sprintf("%d secrets resealed, %d were current, %d could not be opened", c.fresh, c.current, c.lost())
}

// fault names the keys that are missing.
func (c count) fault() error {
	if c.lost() == 0 {
		return nil
	}
	var why []string
	for _, one := range slices.SortedFunc(maps.Keys(c.unopened), func(a, b store.Unopened) int { return cmp.Compare(a.Key, b.Key) }) {
		lies := fmt.Sprintf("%d under key %q, which does not fit", c.unopened[one], one.Key)
		if one.Missing {
			lies = fmt.Sprintf("%d under key %q, which is not in SEALING_KEYS", c.unopened[one], one.Key)
		}
		why = append(why, lies)
	}
	return fmt.Errorf("%d secrets could not be opened: %s", c.lost(), strings.Join(why, "; "))
}
