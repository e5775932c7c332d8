package callrequests

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

// These are the shortest and the longest interval at which a POST polls an idempotency key that
// another POST has claimed.
const (
	firstPollInterval = 25 * time.Millisecond
	maxPollInterval   = 250 * time.Millisecond
)

// claimKey claims the idempotency key. If the key was used for a request, claimKey returns that
// request. While another POST has claimed the key, claimKey waits for that POST.
func (in *Intake) claimKey(ctx context.Context, want store.Claim,
	fingerprint []byte) (claim store.Claim, original *callstate.Request, err error) {
	deadline := time.Now().Add(in.cfg.Wait)
	for {
		claim, ok, err := in.store.ClaimKey(ctx, want, fingerprint, in.cfg.Lease)
		if err != nil {
			return store.Claim{}, nil, err
		}
		if ok {
			failpoint.Inject("calls: after claim")
			return claim, nil, nil
		}
		end, err := in.waitForKey(ctx, want, deadline)
		if err != nil {
			return store.Claim{}, nil, err
		}
		if end.Done {
			if !bytes.Equal(end.Fingerprint, fingerprint) {
				in.mismatchedReplays.Inc()
			}
			req, err := in.store.Request(ctx, want.WorkspaceID, end.RequestID)
			return store.Claim{}, &req, err
		}
	}
}

// waitForKey polls the key until another POST has stored a request for it, until the key is free,
// or until the lease of the key has expired.
func (in *Intake) waitForKey(ctx context.Context, want store.Claim, deadline time.Time) (store.KeyState, error) {
	for pause := firstPollInterval; ; pause = min(2*pause, maxPollInterval) {
		state, err := in.store.KeyState(ctx, want.WorkspaceID, want.Key)
		if errors.Is(err, pg.ErrNotFound) {
			return store.KeyState{}, nil
		}
		if err != nil || state.Done || state.Lapsed {
			return state, err
		}
		if time.Now().After(deadline) {
			busy := apierr.New(http.StatusServiceUnavailable, "unavailable", "An earlier request with this idempotency key is still being worked on. Send this one again.")
			busy.RetryAfter = 2 * time.Second
			return store.KeyState{}, busy
		}
		select {
		case <-ctx.Done():
			return store.KeyState{}, fmt.Errorf("wait for idempotency key: %w", ctx.Err())
		case <-time.After(pause):
		}
	}
}

// releaseKey lets the next POST use the key. After a refusal, releaseKey deletes the key. After any
// other error, the key keeps its request id, because a hold with this id may exist.
func (in *Intake) releaseKey(ctx context.Context, claim store.Claim, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	release := in.store.LapseKey
	var refusal *apierr.Error
	if errors.As(why, &refusal) && refusal.Status != http.StatusServiceUnavailable {
		release = in.store.FreeKey
	}
	if err := release(ctx, claim); err != nil {
		slog.WarnContext(ctx, "idempotency key not freed after a failed POST", "error", err)
	}
}

// bodyFingerprint is a hash of the body without the idempotency key. Bodies with the same fields in
// a different order have the same hash.
func bodyFingerprint(body map[string]json.RawMessage) []byte {
	order := maps.Clone(body)
	delete(order, "idempotency_key")
	text, err := json.Marshal(order) // Marshal sorts the keys of the map; the values are already valid JSON
	if err != nil {
		text = nil
	}
	sum := sha256.Sum256(text)
	return sum[:]
}
