// Package kafka contains the Kafka client, the format of records and the catalogue of topics. It
// also contains the errors with which a handler skips or parks a record.
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

// Config contains the settings of Kafka.
type Config struct {
	// Brokers contains the brokers to which the client connects first. They report the other brokers
	// of the cluster.
	Brokers []string `env:"KAFKA_BROKERS,required" envSeparator:"," help:"Addresses host:port of the brokers to which the service connects first. It finds the other brokers through them."`
	// InstanceID is unique among the replicas, and stays the same after a restart. With it, a consumer
	// that was killed gets its partitions immediately after its restart. Without it, the partitions
	// wait until the broker removes the dead member.
	InstanceID string `env:"KAFKA_INSTANCE_ID" help:"Name of this replica, unique in the service and the same after a restart, for example the pod name of a StatefulSet. With a name, a killed consumer continues immediately after its restart. If empty, it continues after 6 s or more."`
	Security
	Making
}

// Client is a producer and an admin client. The producer is idempotent, and waits until all in-sync
// replicas have a record (acks=all). It sends records without a delay (no linger).
type Client struct {
	*kgo.Client
	cfg Config
	log *logger
}

// NewClient returns a client without waiting for a connection. It returns an error only for invalid
// settings. While the brokers are unavailable or reject the client, the client retries and logs how
// to solve the problem.
//
// A registry accepts only one client with each client ID. If metrics is nil, no metrics are
// registered.
func NewClient(cfg Config, clientID string, metrics prometheus.Registerer, opts ...kgo.Opt) (*Client, error) {
	secure, err := cfg.clientOptions()
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
		// The relay itself sends batches. The default linger of 10 ms would delay every event.
		kgo.ProducerLinger(0),
		// This limit is above the size of the largest event (900 KiB) with its headers, and below the
		// broker's limit of 1 MiB.
		kgo.ProducerBatchMaxBytes(1_000_012),
		kgo.DialTimeout(5*time.Second),
		// With this short interval, the client soon detects a new topic, and a broker that is available
		// again.
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
		return nil, fmt.Errorf("create kafka client %s of KAFKA_BROKERS (host:port,host:port): %w", clientID, err)
	}
	return &Client{client, cfg, log}, nil
}

func backoff(try int) time.Duration {
	return min(100*time.Millisecond<<min(try, 6), 2*time.Second)
}

// logger passes the client's warnings and errors to slog. It drops messages at level info, except
// one: a consumer's offset was out of range and was reset.
type logger struct {
	to  *slog.Logger
	cfg Config
	mu  sync.Mutex
	// logged contains the time at which each warning was logged last. The client repeats some warnings
	// ten times a second.
	logged map[string]time.Time
	// fault is the client's last error, and faultAt is its time.
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
		if remedy := l.cfg.findRemedy(fault); remedy != "" {
			keyvals = append(keyvals, "remedy", remedy)
		}
	}
	if level == kgo.LogLevelWarn {
		l.to.Warn("kafka client: "+msg, keyvals...)
		return
	}
	l.to.Error("kafka client: "+msg, keyvals...)
}

func faultIn(keyvals []any) error {
	for _, value := range keyvals {
		if err, is := value.(error); is {
			return err
		}
	}
	return nil
}

const (
	// repeatInterval is the time after which the same warning is logged again. maxLogged is the
	// maximum number of warnings in the map logged.
	repeatInterval = 10 * time.Second
	maxLogged      = 100
)

func (l *logger) note(level kgo.LogLevel, fault error) {
	if fault == nil || level > kgo.LogLevelWarn {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault, l.faultAt = fault, time.Now()
}

// recentError returns the last error, or nil if it is older than repeatInterval.
func (l *logger) recentError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.faultAt) > repeatInterval {
		return nil
	}
	return l.fault
}

func (l *logger) repeats(warning string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.logged[warning]) < repeatInterval {
		return true
	}
	if l.logged == nil || len(l.logged) >= maxLogged {
		l.logged = map[string]time.Time{}
	}
	l.logged[warning] = time.Now()
	return false
}

type skipError struct{ reason string }

func (e *skipError) Error() string { return e.reason }

type parkError struct{ reason error }

func (e *parkError) Error() string { return e.reason.Error() }
func (e *parkError) Unwrap() error { return e.reason }

// Skipf returns an error for a record that needs no effect. The inbox commits the batch and counts
// the record.
func Skipf(format string, args ...any) error { return &skipError{fmt.Sprintf(format, args...)} }

// Parkf returns an error for a record that this version can never apply. The inbox parks the
// record.
func Parkf(format string, args ...any) error { return &parkError{fmt.Errorf(format, args...)} }

// IsSkip reports whether err is or wraps an error of Skipf.
func IsSkip(err error) bool {
	var skip *skipError
	return errors.As(err, &skip)
}

// IsPark reports whether err is or wraps an error of Parkf.
func IsPark(err error) bool {
	var park *parkError
	return errors.As(err, &park)
}
