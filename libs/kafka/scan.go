package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// scanBytes is the maximum number of compressed bytes that one fetch of Scan returns per partition.
const scanBytes = 256 << 10

// ErrNoTopic is returned if the topic does not exist.
var ErrNoTopic = errors.New("the brokers have no such topic")

// Offsets contains one offset per partition of a topic.
type Offsets map[int32]int64

// Bounds contains the id of a topic, and its first and last offsets at one time.
type Bounds struct {
	// ID is the id of the topic. A topic that is deleted and created again has a new id.
	ID uuid.UUID
	// Start contains the offset of the oldest record of each partition. End contains the offset that
	// the next record of each partition will have.
	Start, End Offsets
}

// ReadBounds returns the id and the bounds of a topic. It returns ErrNoTopic if the topic does not
// exist.
func ReadBounds(ctx context.Context, client *Client, topic Topic) (bounds Bounds, err error) {
	defer func() { err = client.Explain(err) }()
	admin := kadm.NewClient(client.Client)
	have, err := admin.ListTopics(ctx, topic.Name)
	if err != nil {
		return Bounds{}, fmt.Errorf("list topic %s: %w", topic.Name, err)
	}
	found, known := have[topic.Name]
	if !known || errors.Is(found.Err, kerr.UnknownTopicOrPartition) {
		return Bounds{}, fmt.Errorf("%s: %w", topic.Name, ErrNoTopic)
	}
	if found.Err != nil {
		return Bounds{}, fmt.Errorf("list topic %s: %w", topic.Name, found.Err)
	}
	starts, err := admin.ListStartOffsets(ctx, topic.Name)
	if err != nil {
		return Bounds{}, fmt.Errorf("list start offsets of %s: %w", topic.Name, err)
	}
	ends, err := admin.ListEndOffsets(ctx, topic.Name)
	if err != nil {
		return Bounds{}, fmt.Errorf("list end offsets of %s: %w", topic.Name, err)
	}
	if err := errors.Join(starts.Error(), ends.Error()); err != nil {
		return Bounds{}, fmt.Errorf("list offsets of %s: %w", topic.Name, err)
	}
	bounds = Bounds{ID: uuid.UUID(found.ID), Start: Offsets{}, End: Offsets{}}
	starts.Each(func(o kadm.ListedOffset) { bounds.Start[o.Partition] = o.Offset })
	ends.Each(func(o kadm.ListedOffset) { bounds.End[o.Partition] = o.Offset })
	return bounds, nil
}

// Scan calls handle for the records of a topic, in order within each partition, until handle
// returns an error. It joins no consumer group and commits no offset. Records without a valid ce_id
// are included.
//
// Scan reads each partition from its offset in start, by default from the first record, and stops
// before its offset in end. It skips partitions without an offset in end.
func Scan(
	ctx context.Context, cfg Config, clientID string, topic Topic, start, end Offsets, handle func(Record) error,
) error {
	starts, open := map[int32]kgo.Offset{}, Offsets{}
	for partition, stopAt := range end {
		first := kgo.NewOffset().AtStart()
		if at, known := start[partition]; known {
			first = kgo.NewOffset().At(at)
		}
		if stopAt > start[partition] {
			starts[partition], open[partition] = first, stopAt
		}
	}
	if len(open) == 0 {
		return nil
	}
	reader, err := NewClient(cfg, clientID, nil, kgo.FetchMaxPartitionBytes(scanBytes),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic.Name: starts}))
	if err != nil {
		return err
	}
	defer reader.Close()
	for len(open) > 0 {
		fetched := reader.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return fmt.Errorf("read %s: %w", topic.Name, reader.Explain(err))
		}
		for all := fetched.RecordIter(); !all.Done(); {
			wire := all.Next()
			stopAt, wanted := open[wire.Partition]
			if wanted && wire.Offset < stopAt {
				rec, _ := Read(wire) // Read fills the record even after an error
				if err := handle(rec); err != nil {
					return err
				}
			}
			if wanted && wire.Offset+1 >= stopAt {
				delete(open, wire.Partition)
			}
		}
	}
	return nil
}
