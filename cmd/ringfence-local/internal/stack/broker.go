// The embedded Kafka: kfake with its data on disk. A guard drops frames that kfake cannot handle, a
// lock protects the directory, and a ticker runs retention and compaction. The broker creates no
// topic by itself.

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

// Config is the configuration of the broker.
type Config struct {
	Dir  string
	Port int
	// Advertise is the address that the broker sends to its clients. If it is empty, the listener's
	// address is used.
	Advertise string
	// RetainEvery and CompactEvery are the intervals of retention and compaction. 0 means 30 s and
	// 10 min.
	RetainEvery, CompactEvery time.Duration
}

// segmentBytes is the largest size of a log segment in bytes. It is small, because retention
// deletes only whole segments.
const segmentBytes = 16 << 20

// Run serves until ctx ends. It returns an error if another broker has locked the directory.
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
			return guardListener(ln, cfg.Advertise), nil
		}),
		kfake.DataDir(filepath.Join(cfg.Dir, "data")),
		kfake.SyncWrites(),
		kfake.BrokerConfigs(map[string]string{"log.segment.bytes": strconv.Itoa(segmentBytes)}),
	)
	if err != nil {
		return fmt.Errorf("start broker: %w", err)
	}
	defer cluster.Close()
	maintainLogs(ctx, cluster, cfg)
	return nil
}

// maintainLogs runs retention and compaction. kfake starts its own ticker only for new topics, and
// not for topics that it loads from disk.
func maintainLogs(ctx context.Context, cluster *kfake.Cluster, cfg Config) {
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
