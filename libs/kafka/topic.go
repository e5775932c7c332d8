package kafka

import (
	"strings"
	"time"
)

// Topic is one entry of the catalogue.
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

// The catalogue: architecture.md, Topics.
var (
	Workspaces   = Topic{Name: "workspaces.v1", Partitions: 3, Compacted: true}
	Agents       = Topic{Name: "agents.v1", Partitions: 3, Compacted: true}
	CallRequests = Topic{Name: "call-requests.v1", Partitions: 12, Retention: week}
	DialEvents   = Topic{Name: "dial-events.v1", Partitions: 12, Retention: week}
	WalletEvents = Topic{Name: "wallet-events.v1", Partitions: 12, Retention: week}
	CallEvents   = Topic{Name: "call-events.v1", Partitions: 12, Retention: week}
	Contacts     = Topic{Name: "contacts.v1", Partitions: 3, Retention: week}
	// ErasureReports is the one topic with several writers: each tells of its own part of an erasure.
	ErasureReports = Topic{Name: "erasure-reports.v1", Partitions: 3, Retention: week}
	// DialIntents has one record per dial, which is published before the fence of the dial commits.
	DialIntents = Topic{Name: "dial-intents.v1", Partitions: 3, Retention: week}
)

// Catalogue lists every topic; EnsureTopics adds each reader's DLQ (see Readers).
func Catalogue() []Topic {
	return []Topic{Workspaces, Agents, CallRequests, DialEvents, WalletEvents, CallEvents, Contacts, ErasureReports,
		DialIntents}
}

// Readers are the services that consume a topic of the catalogue; each has a DLQ of its own for it.
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

// Named finds a topic by its name, be it in the catalogue or a DLQ of one that is.
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

// DLQ is the dead-letter topic of a topic and its consumer, kept 30 days.
func DLQ(topic Topic, consumer string) Topic {
	return Topic{Name: topic.Name + "." + consumer + dlqSuffix, Partitions: topic.Partitions, Retention: dlqRetention}
}
