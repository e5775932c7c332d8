package auth

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/gateway/internal/secrets"
)

func TestFindIDLimited_DoesNotDelayTheKeyOfAnotherCustomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := keyHash(1000)
		blocked := make(chan struct{})
		keys := newKeyIDs(func(_ context.Context, hash secrets.Hash) (uuid.UUID, error) {
			if hash != good {
				<-blocked
			}
			return uuid.New(), nil
		})
		var flood sync.WaitGroup
		for key := range 10 {
			flood.Go(func() { _, _ = keys.findIDLimited(t.Context(), keyHash(key)) })
		}
		synctest.Wait()
		begun := time.Now()
		if _, err := keys.findID(t.Context(), good); err != nil {
			t.Errorf("look-up of another customer's key: %v", err)
		}
		// In synctest, time passes only while all goroutines are blocked. So took is 0 if findID
		// did not wait.
		if took := time.Since(begun); took != 0 {
			t.Errorf("look-up of another customer's key waited %s, want 0", took)
		}
		close(blocked)
		flood.Wait()
	})
}

func TestFindIDLimited_TimesOutIfTheSlotIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		keys := newKeyIDs(func(context.Context, secrets.Hash) (uuid.UUID, error) {
			<-blocked
			return uuid.New(), nil
		})
		var flood sync.WaitGroup
		flood.Go(func() { _, _ = keys.findIDLimited(t.Context(), keyHash(1)) })
		synctest.Wait()
		begun := time.Now()
		if _, err := keys.findIDLimited(t.Context(), keyHash(2)); err == nil {
			t.Error("second limited look-up = no error, want an error")
		}
		if took := time.Since(begun); took != limitedTimeout {
			t.Errorf("second limited look-up gave up after %s, want %s", took, limitedTimeout)
		}
		close(blocked)
		flood.Wait()
	})
}
