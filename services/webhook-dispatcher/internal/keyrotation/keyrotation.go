// Package keyrotation owns the rotation of the keys that secrets at rest lie under: it walks all subscriptions once and brings each
// secret under the first key, beside the serving replicas. What sealing is, is libs/seal's; how a secret is put in place of another, the store's.
package keyrotation

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

// Rotation is one pass over all secrets.
type Rotation struct {
	Store *store.Store
	// Out is told the end, for a script (service.Scripted) as one object; Progress how far it is.
	Out, Progress io.Writer
	// Batch is how many secrets one transaction takes; zero: 100. Every is after how many a line tells of the progress; zero: 10 000.
	BatchSize, ProgressInterval int
}

const (
	batchSize        = 100
	progressInterval = 10_000
)

// Run seals under the first key what lies under another. Its error says that some could not be opened, that the database failed or that
// ctx ended: what was resealed stays, and another Run goes on. Nil says that the first key alone opens every secret that was there.
func (w Rotation) Run(ctx context.Context) error {
	var all totals
	all.unopened = map[store.Unopened]int{}
	next := cmp.Or(w.ProgressInterval, progressInterval)
	for after := uuid.Nil; ; {
		done, err := w.Store.Reseal(ctx, after, cmp.Or(w.BatchSize, batchSize))
		all.add(done)
		if err == nil && done.Last == uuid.Nil {
			break
		}
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			all.interrupted = true
			_ = all.print(ctx, w.Out) // what broke it off is told in any case
			return interruption(ctx, err)
		}
		if after = done.Last; all.processed() >= next {
			fmt.Fprintf(w.Progress, "so far: %s\n", all)
			next += cmp.Or(w.ProgressInterval, progressInterval)
		}
	}
	return errors.Join(all.print(ctx, w.Out), all.err())
}

// interruption hides that a context ended: to the frame of a service that is a good end, and whoever takes the old key away next must not
// read it as one.
func interruption(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("resealing was interrupted: run it again")
	}
	return fmt.Errorf("resealing was broken off: %w", err)
}

// totals is what became of the secrets.
type totals struct {
	resealed, current int
	unopened          map[store.Unopened]int
	interrupted       bool
}

// unopened is how many secrets lie under a key that does not open them.
type unopened struct {
	Key     string `json:"key"`
	Missing bool   `json:"missing"` // from SEALING_KEYS
	Secrets int    `json:"secrets"`
}

// byKey are those that were not opened, in the order of their keys.
func (c totals) byKey() []unopened {
	found := []unopened{}
	for one, n := range c.unopened {
		found = append(found, unopened{one.Key, one.Missing, n})
	}
	slices.SortFunc(found, func(a, b unopened) int { return cmp.Compare(a.Key, b.Key) })
	return found
}

func (c totals) print(ctx context.Context, out io.Writer) (err error) {
	switch {
	case service.Scripted(ctx):
		return json.NewEncoder(out).Encode(map[string]any{"resealed": c.resealed, "current": c.current, "unopened": c.byKey(), "broken_off": c.interrupted})
	case c.interrupted:
		_, err = fmt.Fprintf(out, "broken off: %s; run it again, it goes on where it stopped\n", c)
	default:
		_, err = fmt.Fprintln(out, c)
	}
	return err
}

func (c *totals) add(done store.Resealed) {
	c.resealed += done.Resealed
	c.current += done.Current
	for _, one := range done.Unopened {
		c.unopened[one]++
	}
}

func (c totals) unopenedSecrets() (n int) {
	for _, some := range c.unopened {
		n += some
	}
	return n
}

func (c totals) processed() int { return c.resealed + c.current + c.unopenedSecrets() }

func (c totals) String() string {
	return fmt.Sprintf("%d secrets resealed, %d already current, %d could not be opened", c.resealed, c.current, c.unopenedSecrets())
}

// err names the keys that are missing.
func (c totals) err() error {
	if c.unopenedSecrets() == 0 {
		return nil
	}
	var why []string
	for _, one := range c.byKey() {
		fault := "does not fit"
		if one.Missing {
			fault = "is not in SEALING_KEYS"
		}
		why = append(why, fmt.Sprintf("%d under key %q, which %s", one.Secrets, one.Key, fault))
	}
	return fmt.Errorf("%d secrets could not be opened: %s", c.unopenedSecrets(), strings.Join(why, "; "))
}
