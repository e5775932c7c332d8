package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// scanned bounds what a fetch brings of each partition, compressed: whoever scans reads much, and holds little.
const scanned = 256 << 10

// ErrNoTopic says that the brokers know no such topic.
var ErrNoTopic = errors.New("the brokers know no such topic")

// Span is how much of a topic is read: all of it, unless something is set.
type Span struct {
	// Last: the newest few records of each partition.
	Last int64
	// Since: from the first record of each partition on that was logged then or later.
	Since time.Time
}

// Scan hands over what a topic holds at the moment, each partition in its order, and ends, early with each's error. It is no member of a group and commits nothing.
// ErrNoTopic: the brokers do not know the topic.
func Scan(ctx context.Context, cfg Config, clientID string, topic Topic, span Span, each func(Record) error) error {
	from, ends, err := bounds(ctx, cfg, clientID, topic.Name, span)
	if err != nil {
		return fmt.Errorf("look at the ends of %s: %w", topic.Name, err)
	}
	if len(from) == 0 {
		return nil
	}
	reader, err := NewClient(cfg, clientID, nil, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic.Name: from}), kgo.FetchMaxPartitionBytes(scanned))
	if err != nil {
		return err
	}
	defer reader.Close()
	for len(ends) > 0 {
		fetched := reader.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return fmt.Errorf("read %s: %w", topic.Name, err)
		}
		for all := fetched.RecordIter(); !all.Done(); {
			wire := all.Next()
			end, open := ends[wire.Partition]
			if rec, err := Read(wire); err == nil && open && wire.Offset < end {
				if err := each(rec); err != nil {
					return err
				}
			}
			if wire.Offset+1 >= end {
				delete(ends, wire.Partition)
			}
		}
	}
	return nil
}

// bounds are where to begin in each partition that holds something, and where it ends.
func bounds(ctx context.Context, cfg Config, clientID, topic string, span Span) (from map[int32]kgo.Offset, ends map[int32]int64, err error) {
	client, err := NewClient(cfg, clientID, nil)
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	defer func() { err = client.Explain(err) }()
	admin := kadm.NewClient(client.Client)
	have, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	if known, is := have[topic]; !is || errors.Is(known.Err, kerr.UnknownTopicOrPartition) {
		return nil, nil, ErrNoTopic
	}
	list := admin.ListStartOffsets
	if !span.Since.IsZero() {
		list = func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return admin.ListOffsetsAfterMilli(ctx, span.Since.UnixMilli(), topics...)
		}
	}
	starts, err := list(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	stops, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = errors.Join(starts.Error(), stops.Error())
	}
	from, ends = map[int32]kgo.Offset{}, map[int32]int64{}
	stops.Each(func(stop kadm.ListedOffset) {
		start, _ := starts.Lookup(topic, stop.Partition)
		first := start.Offset
		if span.Last > 0 {
			first = max(first, stop.Offset-span.Last)
		}
		if first < stop.Offset {
			from[stop.Partition], ends[stop.Partition] = kgo.NewOffset().At(first), stop.Offset
		}
	})
	return from, ends, err
}
