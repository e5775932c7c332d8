package kafka

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
)

// Headers of an event: CloudEvents 1.0 with the Kafka binding in binary mode, and the trace
// context.
const (
	HeaderID          = "ce_id"
	HeaderSource      = "ce_source"
	HeaderSpecVersion = "ce_specversion"
	HeaderType        = "ce_type"
	HeaderTime        = "ce_time"
	HeaderSubject     = "ce_subject"
	HeaderKey         = "ce_partitionkey"
	HeaderWorkspaceID = "ce_workspaceid"
	HeaderContentType = "content-type"
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
)

// Record is a Kafka record in the form in which handlers receive it.
type Record struct {
	Topic       string
	Partition   int32
	Offset      int64
	Key         string
	EventID     uuid.UUID
	Type        string
	WorkspaceID string
	Time        time.Time
	// Logged is the timestamp of the record in Kafka: the time at which the broker appended it. In a
	// topic whose timestamps producers set (CreateTime), it is the time at which the producer sent the
	// record.
	Logged  time.Time
	Value   []byte
	Headers map[string]string
}

// Read parses a record. If the record has no valid ce_id, Read returns an error of Parkf. It then
// derives EventID from topic, partition and offset, so that the record can be parked.
func Read(wire *kgo.Record) (Record, error) {
	rec := Record{
		Topic: wire.Topic, Partition: wire.Partition, Offset: wire.Offset, Key: string(wire.Key), Value: wire.Value,
		Headers: make(map[string]string, len(wire.Headers)),
	}
	for _, header := range wire.Headers {
		rec.Headers[header.Key] = string(header.Value)
	}
	rec.Type, rec.WorkspaceID = rec.Headers[HeaderType], rec.Headers[HeaderWorkspaceID]
	rec.Time, rec.Logged = wire.Timestamp.UTC(), wire.Timestamp.UTC()
	if eventTime, err := time.Parse(time.RFC3339Nano, rec.Headers[HeaderTime]); err == nil {
		rec.Time = eventTime.UTC()
	}
	id, err := uuid.Parse(rec.Headers[HeaderID])
	if err != nil {
		rec.EventID = uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "kafka:%s/%d/%d", wire.Topic, wire.Partition, wire.Offset))
		return rec, Parkf("read header %s: %w", HeaderID, err)
	}
	rec.EventID = id
	return rec, nil
}

// Decode unmarshals the value if ce_type is the name of the message. Otherwise it returns an error
// of Parkf, so that the record is parked.
func (r Record) Decode(into proto.Message) error {
	if want := string(into.ProtoReflect().Descriptor().FullName()); r.Type != want {
		return Parkf("record is of type %q, this build reads %q from %s", r.Type, want, r.Topic)
	}
	if err := proto.Unmarshal(r.Value, into); err != nil {
		return Parkf("decode %s: %w", r.Type, err)
	}
	return nil
}
