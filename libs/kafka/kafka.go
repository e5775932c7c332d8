// Package kafka owns how we speak to the brokers: the client's settings, the record as a handler
// sees it, the topic catalogue and the errors a handler answers with. It knows no service.
package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"

	"ringfence.dev/libs/telemetry"
)

// Config is the Kafka part of every service's environment.
type Config struct {
	// Brokers are where the client begins; it learns the others from them.
	Brokers []string `env:"KAFKA_BROKERS,required" envSeparator:"," help:"brokers to begin with, as host:port,host:port"`
	// InstanceID is this replica's name, the same over its restarts and no other replica's. A consumer that was killed
	// then takes its partitions up at once; without one they wait until the broker gives the dead member up.
	InstanceID string `env:"KAFKA_INSTANCE_ID" help:"name of this replica, unique among the service's and kept over restarts (a StatefulSet's pod name): a killed consumer goes on at once; empty: after 6 s or more"`
	Security
	Making
}

// Client produces (acks all, idempotent, linger 0) and administers.
type Client struct {
	*kgo.Client
	cfg Config
	log *logger
}

// NewClient connects lazily; it fails on settings that no broker can mend, and not while the brokers are away or refuse us: that is tried again, and
// told with its remedy. Metrics carry the client ID as a label, so
// one registry takes each ID once; nil registers none.
func NewClient(cfg Config, clientID string, metrics prometheus.Registerer, opts ...kgo.Opt) (*Client, error) {
	secure, err := cfg.options()
	if err == nil {
		err = cfg.check()
	}
	if err != nil {
		return nil, fmt.Errorf("read the settings of Kafka: %w", err)
	}
	log := &logger{to: slog.Default().With("kafka_client", clientID), cfg: cfg}
	all := append(secure,
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.ClientID(clientID),
		kgo.WithLogger(log),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// The relay's own batches are the batching; kgo's default of 10 ms would be paid once a hop.
		kgo.ProducerLinger(0),
		// Well above a 900 KiB value with its headers, below the broker's 1 MiB.
		kgo.ProducerBatchMaxBytes(1_000_012),
		kgo.DialTimeout(5*time.Second),
		// How soon a client notices that a broker came back or a topic was made.
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.RetryBackoffFn(backoff),
	)
	if metrics != nil {
		labelled := prometheus.WrapRegistererWith(prometheus.Labels{"client": clientID}, metrics)
		all = append(all, kgo.WithHooks(kprom.NewMetrics("kafka", kprom.Registerer(labelled),
			kprom.FetchAndProduceDetail(kprom.ByTopic, kprom.Batches, kprom.Records, kprom.CompressedBytes, kprom.UncompressedBytes))))
	}
	if metrics != nil && cfg.CertFile != "" {
		if err := telemetry.Certificate(metrics, "KAFKA_CERT_FILE", cfg.own); err != nil {
			return nil, err
		}
	}
	client, err := kgo.NewClient(append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("make kafka client %s of KAFKA_BROKERS (host:port,host:port): %w", clientID, err)
	}
	return &Client{client, cfg, log}, nil
}

func backoff(try int) time.Duration {
	return min(100*time.Millisecond<<min(try, 6), 2*time.Second)
}

// logger hands the client's warnings on. What it tells at info is mostly its own bookkeeping, with one exception: a
// consumer that found its offset gone starts over, and that is to be seen.
type logger struct {
	to  *slog.Logger
	cfg Config
	// told is when each warning was told last: a client that tries again ten times a second says so once in a while.
	mu   sync.Mutex
	told map[string]time.Time
	// fault is the newest, of faultAt.
	fault   error
	faultAt time.Time
}

func (l *logger) Level() kgo.LogLevel { return kgo.LogLevelInfo }

func (l *logger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if strings.Contains(msg, "OFFSET_OUT_OF_RANGE") {
		l.to.Error("kafka client: "+msg, keyvals...)
		return
	}
	fault := faultIn(keyvals)
	l.note(level, fault)
	if level > kgo.LogLevelWarn || l.repeats(fmt.Sprint(msg, fault)) {
		return
	}
	if fault != nil {
		if remedy := l.cfg.remedy(fault); remedy != "" {
			keyvals = append(keyvals, "remedy", remedy)
		}
	}
	if level == kgo.LogLevelWarn {
		l.to.Warn("kafka client: "+msg, keyvals...)
		return
	}
	l.to.Error("kafka client: "+msg, keyvals...)
}

// faultIn is the error among the attributes.
func faultIn(keyvals []any) error {
	for _, value := range keyvals {
		if err, is := value.(error); is {
			return err
		}
	}
	return nil
}

const (
	// sameFault is how long a warning that goes on is not told again, and faultsKept how many are remembered for it.
	sameFault  = 10 * time.Second
	faultsKept = 100
)

func (l *logger) note(level kgo.LogLevel, fault error) {
	if fault == nil || level > kgo.LogLevelWarn {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault, l.faultAt = fault, time.Now()
}

// lately is the newest fault, if it is no older than a fault that goes on.
func (l *logger) lately() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.faultAt) > sameFault {
		return nil
	}
	return l.fault
}

func (l *logger) repeats(warning string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.told[warning]) < sameFault {
		return true
	}
	if l.told == nil || len(l.told) >= faultsKept {
		l.told = map[string]time.Time{}
	}
	l.told[warning] = time.Now()
	return false
}

type skipError struct{ reason string }

func (e *skipError) Error() string { return e.reason }

type parkError struct{ reason error }

func (e *parkError) Error() string { return e.reason.Error() }
func (e *parkError) Unwrap() error { return e.reason }

// Skipf says that the record needs no effect: the batch commits and the skip is counted.
func Skipf(format string, args ...any) error { return &skipError{fmt.Sprintf(format, args...)} }

// Parkf says that the record can never be applied by this build.
func Parkf(format string, args ...any) error { return &parkError{fmt.Errorf(format, args...)} }

// IsSkip tells a Skipf, wrapped or not.
func IsSkip(err error) bool {
	var skip *skipError
	return errors.As(err, &skip)
}

// IsPark tells a Parkf, wrapped or not.
func IsPark(err error) bool {
	var park *parkError
	return errors.As(err, &park)
}
