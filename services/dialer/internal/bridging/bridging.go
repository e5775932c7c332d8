// Package bridging joins the carrier's leg with the agent: it reads the carrier's news in order, folds each into its call, lets the
// agent hear what the person says, and answers calls that come in. Any replica can do it: all of a conversation is in
// its call's row.
package bridging

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/crash"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/recovering"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// wait is how long one question for news stays open.
	wait = 2 * time.Second
	// rest is the pause while another replica reads, or after a fault.
	rest = 500 * time.Millisecond
)

// Bridge reads one carrier's news.
type Bridge struct {
	store   *store.Store
	carrier carrier.Carrier
	relay   *outbox.Relay
	recover *recovering.Recoverer
	// ended, arrived and heard wake those who wait for room, for a caller, for an opt-out.
	ended, arrived, heard func()
	// place is where the batch that was just committed ended; nil: it has to be looked up. Run's alone.
	place *store.Place
}

// New reads the news of one carrier. ended is told when calls end, arrived when calls come in, heard when a person opts out.
func New(st *store.Store, trunk carrier.Carrier, relay *outbox.Relay, rec *recovering.Recoverer, ended, arrived, heard func()) *Bridge {
	return &Bridge{store: st, carrier: trunk, relay: relay, recover: rec, ended: ended, arrived: arrived, heard: heard}
}

// Run reads until ctx ends.
func (b *Bridge) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		mine, err := b.read(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrLost) {
			slog.WarnContext(ctx, "the carrier's news cannot be read", "error", err)
		}
		if mine && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
	return nil
}

// read takes one batch of news, if this replica is the one to read. A batch that was committed has made it the reader anew, so that the next one begins where it
// ended; whether it still is the reader, the commit of that one says.
func (b *Bridge) read(ctx context.Context) (mine bool, err error) {
	var place store.Place
	if b.place != nil {
		place, b.place = *b.place, nil
	} else if place, mine, err = b.store.ReadFeed(ctx, b.carrier.Name()); err != nil || !mine {
		return mine, err
	}
	batch, err := b.carrier.News(ctx, place.Cursor, wait)
	if err != nil {
		return true, err
	}
	f := newFolding(batch)
	next := store.Place{Feed: batch.Feed, Cursor: place.Cursor}
	switch {
	case place.Feed != batch.Feed && place.Cursor > 0: // the carrier lost its past: read its new feed from the beginning
		slog.WarnContext(ctx, "the carrier began its news anew")
		next.Cursor, f = 0, newFolding(carrier.Batch{})
	case len(batch.News) > 0:
		next.Cursor = batch.News[len(batch.News)-1].Seq
	}
	if next == place {
		return true, nil
	}
	crash.Point("dialer: before news")
	if err := b.fold(ctx, f, place, next); err != nil {
		return true, err
	}
	crash.Point("dialer: after news")
	b.place = &next
	b.tell(f)
	return true, nil
}

// fold commits one batch. When it tells that a call ended as only one that was answered does, and nobody told of the answer, the carrier is asked about
// that call first; if it does not say, the end is taken as it was told.
func (b *Bridge) fold(ctx context.Context, f *folding, from, to store.Place) error {
	for {
		err := b.store.FoldNews(ctx, store.News{
			Trunk: b.carrier.Name(), From: from, To: to, Arrived: f.arrived(), Calls: f.calls(), Fold: f.fold,
		})
		if !errors.Is(err, errUnanswered) {
			return err
		}
		for _, id := range f.unanswered {
			known, err := b.carrier.Find(ctx, id)
			if err != nil {
				slog.WarnContext(ctx, "it is not known whether a call that ended was answered", "call_id", id, "error", err)
			}
			f.known[id] = known
		}
	}
}

// tell wakes whoever has work from a batch that is committed.
func (b *Bridge) tell(f *folding) {
	b.relay.Wake()
	if f.ends > 0 {
		b.ended()
	}
	if f.arrivals > 0 {
		b.arrived()
	}
	if f.optOuts > 0 {
		b.heard()
	}
	if f.breaks > 0 || len(f.orphans) > 0 {
		b.recover.Wake()
	}
}

// folding is one batch of news on its way into the calls. fold may run again when its transaction does.
type folding struct {
	news                            []carrier.News
	ends, arrivals, optOuts, breaks int
	orphans                         map[uuid.UUID]bool
	// unanswered are the calls about which the carrier is to be asked, known is what it said.
	unanswered []uuid.UUID
	known      map[uuid.UUID]carrier.Knowledge
}

// errUnanswered says that the carrier is to be asked before the batch is folded.
var errUnanswered = errors.New("a call ended that nobody had told to be answered")

func newFolding(batch carrier.Batch) *folding {
	return &folding{news: batch.News, known: map[uuid.UUID]carrier.Knowledge{}}
}

// arrived are the calls that ring us.
func (f *folding) arrived() (calls []store.Arrived) {
	for _, n := range f.news {
		if n.Inbound && n.Kind == carrier.Ringing {
			from := n.From
			if from == "" {
				from = call.Anonymous
			}
			calls = append(calls, store.Arrived{CallID: n.CallID, From: from, To: n.To, RingingAt: n.At})
		}
	}
	f.arrivals = len(calls)
	return calls
}

func (f *folding) calls() (ids []uuid.UUID) {
	for _, n := range f.news {
		ids = append(ids, n.CallID)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// fold takes the news in order. What is late or repeated changes nothing.
func (f *folding) fold(calls map[uuid.UUID]*call.Call) (told store.Folded, err error) {
	f.ends, f.optOuts, f.breaks, f.orphans, f.unanswered = 0, 0, 0, map[uuid.UUID]bool{}, nil
	for _, n := range f.news {
		c := calls[n.CallID]
		if n.Kind == carrier.Ended {
			delete(f.orphans, n.CallID)
		} else if c == nil || !c.Live() {
			f.orphans[n.CallID] = true // it lives there and not here
		}
		if c == nil {
			continue
		}
		if n.Kind != carrier.Said && n.Kind != carrier.OptedOut && !n.Inbound && c.Live() {
			c.Initiate(dialedAt(n)) // whoever asked the carrier may have died before he could write it down
		}
		switch n.Kind {
		case carrier.Ringing:
			c.Ring(n.At)
		case carrier.Answered:
			c.Answer(n.At)
		case carrier.OptedOut:
			c.RecordOptOut(n.Text, n.At)
		case carrier.Said:
			if n.Role != "" {
				c.Note(agent.Turn{Role: n.Role, Text: n.Text, At: n.At, EndedAt: n.SpokenUntil})
				continue
			}
			was := c.Ending
			if c.Hear(n.Text, n.At) {
				c.RecordOptOut(n.Text, n.At)
			}
			if c.Ending != was {
				f.breaks++
			}
		case carrier.Ended:
			f.lostAnswer(c, n)
			if c.End(call.End{
				At: n.At, Cause: n.Cause, ByUs: n.ByUs, Zone: zone(c), Judged: judged(n), Disclosure: n.Disclosure,
			}) {
				f.ends++
			}
		}
	}
	for _, c := range calls {
		if c.OptOut() != nil {
			f.optOuts++
		}
	}
	if len(f.unanswered) > 0 {
		return store.Folded{}, errUnanswered
	}
	told.Orphans = slices.Collect(maps.Keys(f.orphans))
	return told, nil
}

// lostAnswer makes up for an answer that the news left out, or tell too late.
func (f *folding) lostAnswer(c *call.Call, n carrier.News) {
	if !c.Live() || c.AnsweredAt != nil || !n.Cause.Conversed() {
		return
	}
	known, asked := f.known[c.CallID]
	if !asked {
		f.unanswered = append(f.unanswered, c.CallID)
		return
	}
	known.EndedAt = nil // the news tell that
	known.Replay(c, time.UTC)
}

// judged is what the agent made of a call that it talked in by itself.
func judged(n carrier.News) *agent.Judgement {
	if n.Reached == "" {
		return nil
	}
	return &agent.Judgement{Outcome: n.Outcome, Reached: n.Reached}
}

func dialedAt(n carrier.News) time.Time {
	if n.DialedAt != nil {
		return *n.DialedAt
	}
	return n.At
}

// zone returns the time zone of the person.
func zone(c *call.Call) *time.Location { return call.Zone(c.TimeZone, c.Person()) }
