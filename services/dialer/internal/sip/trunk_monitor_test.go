package sip_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/services/dialer/internal/sip"
)

var errSilent = errors.New("the trunk does not answer")

func TestTrunkMonitor_TrunkIsDownAfterTwoUnansweredOPTIONS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := []error{nil, errSilent, nil, errSilent, errSilent, errSilent, nil, nil}
		var asked atomic.Int32
		var changes []bool
		ctx, stop := context.WithCancel(t.Context())
		u := sip.NewTrunkMonitor(sip.TrunkMonitorConfig{
			Name: "test", Changed: func(up bool) { changes = append(changes, up) },
			Probe: func(context.Context) error {
				n := int(asked.Add(1))
				return answers[min(n-1, len(answers)-1)]
			},
		})
		done := make(chan error, 1)
		go func() { done <- u.Run(ctx) }()
		for i, want := range []bool{true, true, true, true, false, false, true, true} {
			synctest.Wait()
			if int(asked.Load()) != i+1 {
				t.Errorf("int(asked.Load()) = %v, want %v", int(asked.Load()), i+1)
			} else if got := u.Up(); got != want {
				t.Errorf("u.Up() = %v, want %v", got, want)
			}
			time.Sleep(30 * time.Second)
		}
		stop()
		<-done
		if !slices.Equal(changes, []bool{false, true}) {
			t.Errorf("notifications = %v", changes)
		}
	})
}

func TestTrunkMonitor_RenewsAndRemovesTheRegistration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var at []time.Duration
		var asked []time.Duration
		ctx, stop := context.WithCancel(t.Context())
		u := sip.NewTrunkMonitor(sip.TrunkMonitorConfig{
			Name: "test", Probe: func(context.Context) error { return nil }, Expires: time.Hour,
			Register: func(_ context.Context, expires time.Duration) (time.Duration, error) {
				at, asked = append(at, time.Since(begun)), append(asked, expires)
				if len(at) == 2 || len(at) == 3 {
					return 0, errSilent
				}
				return 10 * time.Minute, nil
			},
		})
		done := make(chan error, 1)
		go func() { done <- u.Run(ctx) }()
		for _, moment := range []struct {
			until time.Duration
			want  bool
		}{{until: time.Minute, want: true}, {until: 5*time.Minute + time.Second,
			want: false}, {until: 6 * time.Minute, want: true}} {
			time.Sleep(moment.until - time.Since(begun))
			if registered, wanted := u.Registered(); registered != moment.want {
				t.Errorf("after %s registered: registered = %v, want %v", moment.until, registered, moment.want)
			} else if !wanted {
				t.Errorf("after %s registered: wanted = false, want true", moment.until)
			}
		}
		stop()
		<-done
		want := []time.Duration{0, 5 * time.Minute, 5*time.Minute + 5*time.Second, 5*time.Minute + 15*time.Second, 6 * time.Minute}
		switch {
		case !slices.Equal(at, want):
			t.Errorf("at = %v, want %v", at, want)
		case asked[0] != time.Hour:
			t.Errorf("asked[0] = %v, want %v", asked[0], time.Hour)
		case asked[len(asked)-1] != 0:
			t.Errorf("the last request = %v, want 0", asked[len(asked)-1])
		}
	})
}
