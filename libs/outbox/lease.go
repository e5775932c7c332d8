package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config contains the settings of the outbox.
type Config struct {
	// Lease is how long a lease is valid without a renewal. If a relay's process is killed or halted,
	// another relay takes over after this time. Zero means 5 s. The minimum is minLease.
	Lease time.Duration `env:"OUTBOX_LEASE" envDefault:"5s" help:"How long the replica that publishes events can fail to renew its lease before another replica takes over, at least 1s. If it is short, a slow database causes unnecessary takeovers. If it is long, events wait for this time after the replica was killed."`
}

const (
	defaultLease = 5 * time.Second
	minLease     = time.Second
)

type leaseTimes struct {
	// duration is how long a lease is valid without a renewal.
	duration time.Duration
	// trustTime is how long a relay relies on its lease without a renewal. It is shorter than
	// duration, so that a relay stops before another relay can acquire the lease.
	trustTime time.Duration
	// renewInterval is the time between two renewals while a relay works.
	renewInterval time.Duration
	// acquireInterval is the time between two attempts to acquire the lease.
	acquireInterval time.Duration
}

func newLeaseTimes(cfg Config) leaseTimes {
	lease := max(cmp.Or(cfg.Lease, defaultLease), minLease)
	return leaseTimes{duration: lease, trustTime: lease * 4 / 5, renewInterval: lease / 5, acquireInterval: lease / 5}
}

// pollInterval returns how long an idle leader waits for a wake before it reads the outbox again.
// Each read renews the lease. idleTime is the time since the last read that found rows.
func (l leaseTimes) pollInterval(idleTime time.Duration) time.Duration {
	if idleTime <= quietAfter {
		return fastPoll
	}
	return min(slowPoll, l.duration/2)
}

// errDeposed ends the session of a relay that possibly has lost the lease.
var errDeposed = errors.New("the relay's lease is lost")

// acquireLease acquires the lease if it has expired, or if an earlier session of this relay still
// has it. The column fence counts the acquisitions, so that the earlier session cannot renew the
// lease.
const acquireLease = `
UPDATE outbox_leases
SET holder = @holder, fence = fence + 1, expires_at = clock_timestamp() + @duration::interval
WHERE holder = @holder OR expires_at <= clock_timestamp()
RETURNING fence, floor`

const renewLease = `
UPDATE outbox_leases SET expires_at = clock_timestamp() + @duration::interval, floor = greatest(floor, @floor)
WHERE holder = @holder AND fence = @fence
RETURNING fence, floor`

const releaseLease = `
UPDATE outbox_leases SET expires_at = '-infinity'
WHERE holder = @holder AND fence = @fence
RETURNING fence, floor`

func (s *session) acquire() (held bool, err error) {
	return s.updateLease(acquireLease, statementTimeout)
}

// verifyLease returns nil if the lease was renewed less than maxAge ago. Otherwise it renews the
// lease. If the renewal fails, it returns errDeposed.
func (s *session) verifyLease(maxAge time.Duration) error {
	if time.Since(s.renewed) < maxAge {
		return nil
	}
	held, err := s.updateLease(renewLease, s.relay.lease.trustTime)
	if err != nil {
		return fmt.Errorf("%w: renew: %w", errDeposed, err)
	}
	if !held {
		return errDeposed
	}
	return nil
}

// giveUpLease releases the lease, so that another relay can acquire it immediately.
func (s *session) giveUpLease() {
	if _, err := s.updateLease(releaseLease, time.Second); err != nil {
		slog.Warn("outbox lease not released, other relays wait until it expires", "error", err)
	}
}

// updateLease runs acquireLease, renewLease or releaseLease. It returns false if another relay has
// the lease. The statement then changes nothing.
func (s *session) updateLease(statement string, timeout time.Duration) (held bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// This process reads its clock before it sends the statement. The server starts the lease later,
	// so the lease does not end before this process expects it.
	began := time.Now()
	args := pgx.NamedArgs{
		"holder": s.relay.id, "fence": s.acquisitions, "duration": s.relay.lease.duration, "floor": s.floor.id,
	}
	err = s.conn.QueryRow(ctx, statement, args).Scan(&s.acquisitions, &s.floor.id)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.renewed = began
	return true, nil
}
