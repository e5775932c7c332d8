package kafka

import (
	"strings"
	"time"
)

// Topic describes a Kafka topic: its name, partitions and retention. Catalogue lists all topics.
type Topic struct {
	Name       string
	Partitions int32
	Compacted  bool
	Retention  time.Duration
}

const (
	week         = 7 * 24 * time.Hour
	dlqRetention = 30 * 24 * time.Hour
	dlqSuffix    = ".dlq"
)

// Topics of the catalogue (docs/architecture.md#events).
var (
	Workspaces   = Topic{Name: "workspaces.v1", Partitions: 3, Compacted: true}
	Agents       = Topic{Name: "agents.v1", Partitions: 3, Compacted: true}
	CallRequests = Topic{Name: "call-requests.v1", Partitions: 12, Retention: week}
	DialEvents   = Topic{Name: "dial-events.v1", Partitions: 12, Retention: week}
	WalletEvents = Topic{Name: "wallet-events.v1", Partitions: 12, Retention: week}
	CallEvents   = Topic{Name: "call-events.v1", Partitions: 12, Retention: week}
	Contacts     = Topic{Name: "contacts.v1", Partitions: 3, Retention: week}
	// ErasureReports has several producers: each service reports its part of an erasure.
	ErasureReports = Topic{Name: "erasure-reports.v1", Partitions: 3, Retention: week}
	// DialIntents contains one record per dial. A dialer publishes it before it commits the fence, the
	// database row that permits the dial.
	DialIntents = Topic{Name: "dial-intents.v1", Partitions: 3, Retention: week}
	// CallTurns contains the conversation turns of calls in progress. Every replica of
	// webhook-dispatcher reads all of its records without a consumer group, so the topic has no DLQ.
	CallTurns = Topic{Name: "call-turns.v1", Partitions: 3, Retention: 10 * time.Minute}
)

// Catalogue returns all topics. EnsureTopics also creates a DLQ for each reader of a topic (see
// Readers).
func Catalogue() []Topic {
	return []Topic{Workspaces, Agents, CallRequests, DialEvents, WalletEvents, CallEvents, Contacts, ErasureReports,
		DialIntents, CallTurns}
}

// Readers returns the services that consume a topic of the catalogue. The topic has a separate DLQ
// for each of them.
func Readers(topic string) []string {
	switch topic {
	case Workspaces.Name:
		return []string{"calls", "dialer", "webhook-dispatcher", "contacts-compliance", "billing-wallet"}
	case Agents.Name:
		return []string{"dialer"}
	case CallRequests.Name:
		return []string{"dialer", "billing-wallet"}
	case DialEvents.Name:
		return []string{"calls", "billing-wallet"}
	case WalletEvents.Name:
		return []string{"calls"}
	case CallEvents.Name:
		return []string{"webhook-dispatcher"}
	case Contacts.Name:
		return []string{"calls", "dialer"}
	case ErasureReports.Name:
		return []string{"contacts-compliance"}
	}
	return nil
}

// Named returns the topic with the name: a topic of the catalogue or one of its DLQs.
func Named(name string) (Topic, bool) {
	for _, topic := range Catalogue() {
		if topic.Name == name {
			return topic, true
		}
		rest, isDLQ := strings.CutSuffix(name, dlqSuffix)
		consumer, ofTopic := strings.CutPrefix(rest, topic.Name+".")
		if isDLQ && ofTopic {
			return DLQ(topic, consumer), true
		}
	}
	return Topic{}, false
}

// DLQ returns the dead-letter topic of a consumer for a topic. It keeps records for 30 days.
func DLQ(topic Topic, consumer string) Topic {
	return Topic{Name: topic.Name + "." + consumer + dlqSuffix, Partitions: topic.Partitions, Retention: dlqRetention}
}
