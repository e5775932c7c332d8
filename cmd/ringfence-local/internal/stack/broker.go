// Package broker owns the embedded Kafka: kfake on disk, made safe for a long life (reference: the
// guard at its door, a lock on its directory, its own ticker for retention and compaction). Topics are the
// business of whoever starts it; none is ever made by being named.

package stack

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Config says where the broker lies and listens.
type Config struct {
	Dir  string
	Port int
	// Advertise is the address that clients are told to come to; empty: the one it listens on.
	Advertise string
	// RetainEvery and CompactEvery are the ticker's periods; zero: 30 s and 10 min.
	RetainEvery, CompactEvery time.Duration
}

// segmentBytes bounds a segment: retention removes whole segments only.
const segmentBytes = 16 << 20

// Run serves until ctx ends. The directory's lock makes a second broker on it fail: two would write over each other.
func Run(ctx context.Context, cfg Config) error {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("make broker directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(cfg.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open broker lock: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another broker runs on %s: %w", cfg.Dir, err)
	}
	cluster, err := kfake.NewCluster(
		kfake.Ports(cfg.Port),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			ln, err := net.Listen(network, address)
			if err != nil {
				return nil, err
			}
			return guard(ln, cfg.Advertise), nil
		}),
		kfake.DataDir(filepath.Join(cfg.Dir, "data")),
		kfake.SyncWrites(),
		kfake.BrokerConfigs(map[string]string{"log.segment.bytes": strconv.Itoa(segmentBytes)}),
	)
	if err != nil {
		return fmt.Errorf("start broker: %w", err)
	}
	defer cluster.Close()
	tick(ctx, cluster, cfg)
	return nil
}

// tick keeps retention and compaction going: kfake arms its own ticker when a topic is made, never when
// it is loaded from disk.
func tick(ctx context.Context, cluster *kfake.Cluster, cfg Config) {
	retain := time.NewTicker(orElse(cfg.RetainEvery, 30*time.Second))
	defer retain.Stop()
	compact := time.NewTicker(orElse(cfg.CompactEvery, 10*time.Minute))
	defer compact.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-retain.C:
			cluster.ApplyRetention()
		case <-compact.C:
			cluster.Compact()
		}
	}
}

func orElse(d, other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return d
}
