// Package settings applies a changed setting to other services before the client gets the response
// to the change. The service that owns the setting commits it and calls Confirm. Confirm calls
// ApplySetting of every service that uses the setting.
package settings

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
)

const (
	// Timeout limits the time that Confirm waits for all services together
	// (docs/reference/api/operator-api.md#workspace-fields).
	Timeout = 2 * time.Second
	// retryInterval is the pause before a service that was unavailable is called again.
	retryInterval = 50 * time.Millisecond
)

// Confirm calls all functions in applyByService concurrently. The keys are the names of the
// services. A function returns nil if its service has stored the setting. A function that returns
// connect.CodeUnavailable is called again until Timeout, because the service can be restarting.
//
// The caller must already have committed the setting and its event. If a service does not confirm
// in time, Confirm returns a 503 error whose message begins with subject ("The change"). Confirm
// ignores the end of ctx, because all services must get the setting even if the client disconnects.
func Confirm(ctx context.Context, subject string, applyByService map[string]func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	var mu sync.Mutex
	missing := map[string]bool{}
	var calls sync.WaitGroup
	for service, call := range applyByService {
		calls.Go(func() {
			err := untilAvailable(ctx, call)
			if err == nil {
				return
			}
			slog.ErrorContext(ctx, "setting not confirmed by another service", "service", service, "error", err)
			mu.Lock()
			defer mu.Unlock()
			missing[service] = true
		})
	}
	calls.Wait()
	if len(missing) == 0 {
		return nil
	}
	return unconfirmed(subject, slices.Sorted(maps.Keys(missing)))
}

func untilAvailable(ctx context.Context, call func(context.Context) error) error {
	for {
		err := call(ctx)
		if connect.CodeOf(err) != connect.CodeUnavailable {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryInterval):
		}
	}
}

func unconfirmed(subject string, services []string) error {
	err := apierr.New(http.StatusServiceUnavailable, "unavailable",
		"%s is stored and will be in force later: %s did not confirm it within %d s.",
		subject, strings.Join(services, ", "), int(Timeout/time.Second))
	err.RetryAfter = Timeout
	return err
}

// ResponseError converts an error of a store to the error that the RPC ApplySetting returns.
// CodeUnavailable means that the database is unavailable and that the caller must call again.
func ResponseError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case kafka.IsPark(err):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case pg.IsDown(err), errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeUnavailable, errors.New("the database is unavailable"))
	}
	slog.ErrorContext(ctx, "setting from another service not stored", "error", err)
	return connect.NewError(connect.CodeInternal, errors.New("the setting was not stored"))
}
