// Package upkeep keeps an eye on one trunk: whether it is there, by OPTIONS, and that it knows where we are, by REGISTER.

package sip

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Usual times, used where a Config has none.
const (
	probeInterval        = 30 * time.Second
	defaultMisses        = 2
	defaultAnswerTimeout = 5 * time.Second
	defaultExpires       = 10 * time.Minute
	minRetryInterval     = 5 * time.Second
)

// Probe asks once whether the trunk is there.
type Probe func(context.Context) error

// Register says once where we are, for as long as asked, and answers how long the trunk will know; 0 takes it back.
type Register func(ctx context.Context, expires time.Duration) (granted time.Duration, err error)

// TrunkMonitorConfig of an upkeep; zero values are the usual ones.
type TrunkMonitorConfig struct {
	Name string
	// Every is the pause between two questions: 30 s. Misses is how many in a row that are not answered make it down: 2. Answer is how long one may take: 5 s.
	Interval, AnswerTimeout time.Duration
	Misses                  int
	// Expires is what a registration asks for: 10 min. Register is nil for a trunk that wants none.
	Expires  time.Duration
	Probe    Probe
	Register Register
	// Changed is told when the trunk goes up or down. It must not block.
	Changed func(up bool)
	Log     *slog.Logger
}

// TrunkMonitor of one trunk.
type TrunkMonitor struct {
	cfg        TrunkMonitorConfig
	down       atomic.Bool
	answered   atomic.Bool
	registered atomic.Bool
	doubts     chan struct{}
}

// NewTrunkMonitor looks after a trunk while Run runs.
func NewTrunkMonitor(cfg TrunkMonitorConfig) *TrunkMonitor {
	for value, usual := range map[*time.Duration]time.Duration{&cfg.Interval: probeInterval, &cfg.AnswerTimeout: defaultAnswerTimeout, &cfg.Expires: defaultExpires} {
		if *value <= 0 {
			*value = usual
		}
	}
	if cfg.Misses <= 0 {
		cfg.Misses = defaultMisses
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &TrunkMonitor{cfg: cfg, doubts: make(chan struct{}, 1)}
}

// Up says whether the trunk answered lately, or was not asked yet.
func (u *TrunkMonitor) Up() bool { return !u.down.Load() }

// Answered reports whether the trunk is up and has answered an OPTIONS request since it was set up or since
// the last Doubt.
func (u *TrunkMonitor) Answered() bool { return u.answered.Load() && !u.down.Load() }

// Doubt records that an INVITE was not answered. The next OPTIONS request is sent immediately, and Answered
// returns false until the trunk answers it.
func (u *TrunkMonitor) Doubt() {
	u.answered.Store(false)
	select {
	case u.doubts <- struct{}{}:
	default:
	}
}

// Registered says whether the trunk took our last word of where we are; asked is false for a trunk that wants none.
func (u *TrunkMonitor) Registered() (registered, asked bool) {
	return u.registered.Load(), u.cfg.Register != nil
}

// Run goes on until ctx ends; then it takes the registration back.
func (u *TrunkMonitor) Run(ctx context.Context) error {
	registered := make(chan struct{})
	go func() {
		defer close(registered)
		u.registerLoop(ctx)
	}()
	u.probeLoop(ctx)
	<-registered
	return nil
}

func (u *TrunkMonitor) probeLoop(ctx context.Context) {
	missed := 0
	for ctx.Err() == nil {
		err := u.probeOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			missed++
			u.cfg.Log.InfoContext(ctx, "trunk did not answer OPTIONS", "trunk", u.cfg.Name, "missed", missed, "error", err)
		default:
			missed = 0
			u.answered.Store(true)
		}
		if down := missed >= u.cfg.Misses; down != u.down.Load() && (down || missed == 0) {
			u.down.Store(down)
			u.cfg.Log.WarnContext(ctx, "trunk state changed", "trunk", u.cfg.Name, "up", !down)
			if u.cfg.Changed != nil {
				u.cfg.Changed(!down)
			}
		}
		pause := u.cfg.Interval
		if !u.answered.Load() {
			pause = min(pause, minRetryInterval)
		}
		waitOrWake(ctx, pause, u.doubts)
	}
}

func (u *TrunkMonitor) probeOnce(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, u.cfg.AnswerTimeout)
	defer done()
	return u.cfg.Probe(ctx)
}

// registerLoop keeps the registration: anew when half of what was granted has passed, and soon again after a failure, less often each time.
func (u *TrunkMonitor) registerLoop(ctx context.Context) {
	if u.cfg.Register == nil {
		return
	}
	pause := minRetryInterval
	for ctx.Err() == nil {
		granted, err := u.registerOnce(ctx, u.cfg.Expires)
		u.registered.Store(err == nil)
		if err != nil && ctx.Err() == nil {
			u.cfg.Log.WarnContext(ctx, "trunk registration failed", "trunk", u.cfg.Name, "error", err)
			waitOrWake(ctx, pause, nil)
			pause = min(2*pause, u.cfg.Expires)
			continue
		}
		pause = minRetryInterval
		waitOrWake(ctx, max(granted/2, time.Second), nil)
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), u.cfg.AnswerTimeout)
	defer done()
	if _, err := u.cfg.Register(last, 0); err != nil {
		u.cfg.Log.InfoContext(last, "trunk registration not removed", "trunk", u.cfg.Name, "error", err)
	}
}

func (u *TrunkMonitor) registerOnce(ctx context.Context, expires time.Duration) (time.Duration, error) {
	ctx, done := context.WithTimeout(ctx, u.cfg.AnswerTimeout)
	defer done()
	return u.cfg.Register(ctx, expires)
}

// waitOrWake returns after the pause, when ctx ends, or when a value arrives on wake.
func waitOrWake(ctx context.Context, pause time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}
