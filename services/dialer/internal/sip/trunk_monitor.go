package sip

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Defaults of TrunkMonitorConfig.
const (
	probeInterval        = 30 * time.Second
	defaultMisses        = 2
	defaultAnswerTimeout = 5 * time.Second
	defaultExpires       = 10 * time.Minute
	minRetryInterval     = 5 * time.Second
)

// Probe sends one OPTIONS request. It returns an error if the trunk did not answer.
type Probe func(context.Context) error

// Register sends one REGISTER with the requested lifetime and returns the granted lifetime. If the
// requested lifetime is 0, Register removes the registration.
type Register func(ctx context.Context, requested time.Duration) (granted time.Duration, err error)

// TrunkMonitorConfig configures a TrunkMonitor. If a duration or number is zero, the default
// applies.
type TrunkMonitorConfig struct {
	Name string
	// Interval is the time between two OPTIONS requests (default 30 s). AnswerTimeout is how long the
	// monitor waits for an answer (default 5 s). Misses is the number of consecutive requests without
	// an answer after which the trunk is down (default 2).
	Interval, AnswerTimeout time.Duration
	Misses                  int
	// Expires is the requested lifetime of a registration (default 10 min). Register is nil for a
	// trunk without registration.
	Expires  time.Duration
	Probe    Probe
	Register Register
	// Changed is called when the trunk goes up or down. It must not block.
	Changed func(up bool)
	Log     *slog.Logger
}

// TrunkMonitor sends OPTIONS and REGISTER requests to one trunk. Its methods are safe for
// concurrent use.
type TrunkMonitor struct {
	cfg        TrunkMonitorConfig
	down       atomic.Bool
	answered   atomic.Bool
	registered atomic.Bool
	doubts     chan struct{}
}

// NewTrunkMonitor returns a monitor. It sends requests only while Run runs.
func NewTrunkMonitor(cfg TrunkMonitorConfig) *TrunkMonitor {
	for value, usual := range map[*time.Duration]time.Duration{
		&cfg.Interval: probeInterval, &cfg.AnswerTimeout: defaultAnswerTimeout, &cfg.Expires: defaultExpires,
	} {
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

// Up reports whether the trunk is up. The trunk counts as up before the first OPTIONS request.
func (u *TrunkMonitor) Up() bool { return !u.down.Load() }

// HasAnswered reports whether the trunk is up and has answered an OPTIONS request since the start
// or since the last ProbeNow.
func (u *TrunkMonitor) HasAnswered() bool { return u.answered.Load() && !u.down.Load() }

// ProbeNow sends the next OPTIONS request immediately. It is called after the trunk did not respond
// to an INVITE. HasAnswered returns false until the trunk answers the OPTIONS request.
func (u *TrunkMonitor) ProbeNow() {
	u.answered.Store(false)
	select {
	case u.doubts <- struct{}{}:
	default:
	}
}

// Registered reports whether the trunk accepted the last REGISTER. configured is false for a trunk
// without registration.
func (u *TrunkMonitor) Registered() (registered, configured bool) {
	return u.registered.Load(), u.cfg.Register != nil
}

// Run sends requests until ctx ends. Then it removes the trunk's registration.
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

// registerLoop renews the registration after half of the granted time. After the first failure it
// waits for minRetryInterval. Each further failure doubles the wait, up to Expires.
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

// waitOrWake waits for the pause. It returns earlier if ctx ends or the channel wake receives a
// value.
func waitOrWake(ctx context.Context, pause time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}
