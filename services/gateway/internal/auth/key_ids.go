package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/secrets"
)

const (
	// lookupTimeout limits the duration of one key look-up or one count. If the database does not
	// respond in time, the response is 503.
	lookupTimeout = 3 * time.Second
	// maxUnknownLookups limits the number of concurrent look-ups of keys that are not in the cache.
	// So many requests with invented keys cannot use up the database connections of other requests.
	maxUnknownLookups = 4
	// limitedTimeout is the maximum time that a look-up waits for limitedSlot. Only look-ups from
	// client addresses above their limit use this slot.
	limitedTimeout = 500 * time.Millisecond
	// maxEntries is the maximum number of entries in each cache of package auth.
	maxEntries = 20_000
)

// keyIDs finds the ids of API keys by their hashes. The id of a hash never changes, so cache
// entries do not expire. Whether a key is revoked is read from the database for each request.
//
// Unknown hashes have a separate cache, so that requests with invented keys do not remove a known
// key from the cache.
type keyIDs struct {
	find    func(context.Context, secrets.Hash) (uuid.UUID, error)
	known   *lru.Cache[secrets.Hash, uuid.UUID]
	unknown *lru.Cache[secrets.Hash, struct{}]
	flights singleflight.Group
	slots   chan struct{}
	// limitedSlot has one slot: look-ups from addresses above their limit run one at a time.
	limitedSlot chan struct{}
}

// newKeyIDs returns keyIDs with empty caches. readID returns pg.ErrNotFound for an unknown key.
func newKeyIDs(readID func(context.Context, secrets.Hash) (uuid.UUID, error)) *keyIDs {
	return &keyIDs{
		find: readID, known: newCache[secrets.Hash, uuid.UUID](), unknown: newCache[secrets.Hash, struct{}](),
		slots: make(chan struct{}, maxUnknownLookups), limitedSlot: make(chan struct{}, 1),
	}
}

func newCache[K comparable, V any]() *lru.Cache[K, V] {
	cache, err := lru.New[K, V](maxEntries)
	if err != nil { // lru.New returns an error only if the size is not positive
		panic(err)
	}
	return cache
}

// findID returns the id of a key, or pg.ErrNotFound. Other errors are not cached.
func (k *keyIDs) findID(ctx context.Context, hash secrets.Hash) (uuid.UUID, error) {
	return k.lookUp(ctx, hash, k.slots, lookupTimeout)
}

// findIDLimited is like findID, but for a request from an address above its limit. Only one such
// request looks up a key at a time, and other such requests wait for at most limitedTimeout. It
// does not use the slots of other addresses.
func (k *keyIDs) findIDLimited(ctx context.Context, hash secrets.Hash) (uuid.UUID, error) {
	return k.lookUp(ctx, hash, k.limitedSlot, limitedTimeout)
}

func (k *keyIDs) isKnown(hash secrets.Hash) bool { return k.known.Contains(hash) }

// revoke moves a key that is no longer valid from the known keys to the unknown keys.
func (k *keyIDs) revoke(hash secrets.Hash) {
	k.known.Remove(hash)
	k.unknown.Add(hash, struct{}{})
}

// lookUp returns the cached id. If the id is not cached, lookUp waits for a free slot and reads the
// id from the database. Concurrent look-ups of one key share one query.
func (k *keyIDs) lookUp(
	ctx context.Context, hash secrets.Hash, slots chan struct{}, timeout time.Duration,
) (uuid.UUID, error) {
	if id, ok := k.known.Get(hash); ok {
		return id, nil
	}
	if _, ok := k.unknown.Get(hash); ok {
		return uuid.Nil, pg.ErrNotFound
	}
	flight := k.flights.DoChan(fmt.Sprintf("%p%s", slots, hash[:]), func() (any, error) {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		wait, stop := context.WithTimeout(own, timeout)
		defer stop()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-wait.Done():
			return uuid.Nil, fmt.Errorf("wait for a slot to look up a key: %w", wait.Err())
		}
		return k.query(own, hash)
	})
	select {
	case <-ctx.Done():
		return uuid.Nil, fmt.Errorf("wait for the look-up of a key: %w", ctx.Err())
	case result := <-flight:
		id, _ := result.Val.(uuid.UUID)
		return id, result.Err
	}
}

func (k *keyIDs) query(ctx context.Context, hash secrets.Hash) (uuid.UUID, error) {
	id, err := k.find(ctx, hash)
	switch {
	case err == nil:
		k.known.Add(hash, id)
	case errors.Is(err, pg.ErrNotFound):
		k.unknown.Add(hash, struct{}{})
	}
	return id, err
}
