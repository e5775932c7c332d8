// Package kafka owns how we speak to the brokers: the client's settings, the record as a handler
// sees it, the topic catalogue and the errors a handler answers with. It knows no service.
package kafka

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
)

// Config is the Kafka part of every service's environment.
type Config struct {
	Brokers []string `env:"KAFKA_BROKERS,required" envSeparator:","`
}

// Client produces (acks all, idempotent, linger 0) and administers.
type Client struct{ *kgo.Client }

// NewClient connects lazily; it does not fail while the brokers are away.
func NewClient(cfg Config, clientID string, metrics prometheus.Registerer, opts ...kgo.Opt) (*Client, error) {
	panic("unwritten")
}

// Topic is one entry of the catalogue.
type Topic struct {
	Name       string
	Partitions int32
	Compacted  bool
	Retention  time.Duration
}

// The catalogue: architecture.md, Topics.
var (
	Workspaces   = Topic{Name: "workspaces.v1", Partitions: 3, Compacted: true}
	Agents       = Topic{Name: "agents.v1", Partitions: 3, Compacted: true}
	CallRequests = Topic{Name: "call-requests.v1", Partitions: 12, Retention: 7 * 24 * time.Hour}
	DialEvents   = Topic{Name: "dial-events.v1", Partitions: 12, Retention: 7 * 24 * time.Hour}
	WalletEvents = Topic{Name: "wallet-events.v1", Partitions: 12, Retention: 7 * 24 * time.Hour}
	CallEvents   = Topic{Name: "call-events.v1", Partitions: 12, Retention: 7 * 24 * time.Hour}
)

// Catalogue lists every topic; EnsureTopics adds each reader's DLQ (see Readers).
func Catalogue() []Topic { panic("unwritten") }

// DLQ is the dead-letter topic of a topic and its consumer, kept 30 days.
func DLQ(topic Topic, consumer string) Topic { panic("unwritten") }

// EnsureTopics creates what is missing and fails on a partition count that differs.
func EnsureTopics(ctx context.Context, client *Client, topics []Topic) error { panic("unwritten") }

// Record is one fact as a handler sees it.
type Record struct {
	Topic       string
	Partition   int32
	Offset      int64
	Key         string
	EventID     uuid.UUID
	Type        string
	WorkspaceID string
	Time        time.Time
	Value       []byte
	Headers     map[string]string
}

// Decode unmarshals the value after checking that ce_type is the message's name; its error parks the record.
func (r Record) Decode(into proto.Message) error { panic("unwritten") }

// Skipf says that the record needs no effect: the batch commits and the skip is counted.
func Skipf(format string, args ...any) error { panic("unwritten") }

// Parkf says that the record can never be applied by this build.
func Parkf(format string, args ...any) error { panic("unwritten") }

// IsSkip and IsPark tell the two apart.
func IsSkip(err error) bool { panic("unwritten") }
func IsPark(err error) bool { panic("unwritten") }
