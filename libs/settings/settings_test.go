package settings_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/settings"
)

func TestConfirm_CallsEveryServiceConcurrently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		slow := func(context.Context) error {
			<-time.After(time.Second)
			calls.Add(1)
			return nil
		}
		begun := time.Now()
		err := settings.Confirm(t.Context(), "The change", map[string]func(context.Context) error{"calls": slow,
			"dialer": slow})
		if err != nil {
			t.Errorf("Confirm = %v, want nil", err)
		}
		if got := calls.Load(); got != 2 {
			t.Errorf("services called = %d, want 2", got)
		}
		if got := time.Since(begun); got != time.Second {
			t.Errorf("Confirm took %s, want 1s", got)
		}
	})
}

func TestConfirm_NamesTheServicesThatDidNotConfirm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		err := settings.Confirm(t.Context(), "The change", map[string]func(context.Context) error{
			"webhook-dispatcher": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			"calls":              func(context.Context) error { return nil },
			"dialer": func(context.Context) error {
				return connect.NewError(connect.CodeUnavailable, errors.New("connection refused"))
			},
		})
		var refused *apierr.Error
		if !errors.As(err, &refused) {
			t.Fatalf("Confirm = %v, want an *apierr.Error", err)
		}
		if refused.Status != http.StatusServiceUnavailable {
			t.Errorf("status = %d, want 503", refused.Status)
		}
		if refused.Code != "unavailable" {
			t.Errorf("code = %q, want unavailable", refused.Code)
		}
		want := "The change is stored and will be in force later: dialer, webhook-dispatcher did not confirm it within 2 s."
		if refused.Message != want {
			t.Errorf("message = %q, want %q", refused.Message, want)
		}
		if refused.RetryAfter != 2*time.Second {
			t.Errorf("Retry-After = %s, want 2s", refused.RetryAfter)
		}
		if got := time.Since(begun); got != settings.Timeout {
			t.Errorf("Confirm took %s, want %s", got, settings.Timeout)
		}
	})
}

func TestConfirm_CallsARestartingServiceAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := settings.Confirm(t.Context(), "The change", map[string]func(context.Context) error{"calls": func(
			context.Context) error {
			if calls++; calls < 3 {
				return connect.NewError(connect.CodeUnavailable, errors.New("connection refused"))
			}
			return nil
		}})
		if err != nil {
			t.Errorf("Confirm = %v, want nil", err)
		}
		if calls != 3 {
			t.Errorf("calls = %d, want 3", calls)
		}
	})
}

func TestConfirm_ContinuesWhenTheClientDisconnects(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := settings.Confirm(ctx, "The change", map[string]func(context.Context) error{
		"calls": func(ctx context.Context) error { return ctx.Err() },
	})
	if err != nil {
		t.Errorf("Confirm with a canceled context = %v, want nil", err)
	}
}

func TestResponseError_IsUnavailableIfConfirmMustRetry(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		want connect.Code
	}{
		{name: "message that this build cannot read", err: kafka.Parkf("workspace_id: not a UUID"),
			want: connect.CodeInvalidArgument},
		{name: "expired deadline of the caller", err: context.DeadlineExceeded, want: connect.CodeUnavailable},
		{name: "any other error", err: errors.New("constraint violated"), want: connect.CodeInternal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := connect.CodeOf(settings.ResponseError(t.Context(), tt.err)); got != tt.want {
				t.Errorf("ResponseError(%v) = %s, want %s", tt.err, got, tt.want)
			}
		})
	}
	if err := settings.ResponseError(t.Context(), nil); err != nil {
		t.Errorf("ResponseError(nil) = %v, want nil", err)
	}
}
