// Package dbfailover ensures that a request is dialed at most once even if the database loses its
// last commits. This can happen in a failover to an asynchronous standby, or in a restore from a
// backup.
//
// Before the dialer commits the fence of a dial, it publishes an intent to dial-intents.v1 and
// waits for Kafka's acknowledgement (Publisher).
//
// On another database server, the dialer first reads the intents. If the database has lost the
// fence of an intent, the dialer inserts the fence and the call, or ends the request (Reconciler).
//
// The guarantee requires that the old primary accepts no more writes before a standby is promoted.
// Otherwise there would be two dial queues, and the requests in both queues would be dialed.
package dbfailover

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/store"
)

// source is the value of the header ce_source in all records.
const source = "/dialer"

func encodeIntended(i store.Intent) (*kgo.Record, error) {
	event := newEvent(i)
	intended := &eventv1.DialIntended{
		From: i.From, ToE164: i.To, Trunk: i.Trunk, AgentId: i.AgentID.String(), MaxCallSeconds: i.MaxCallSeconds,
		TimeZone: i.TimeZone, ByPerson: i.ByPerson,
	}
	if i.ContactID != nil {
		intended.ContactId = i.ContactID.String()
	}
	if i.QueuedAt != nil {
		intended.QueuedAt = timestamppb.New(*i.QueuedAt)
	}
	event.Event = &eventv1.DialIntent_Intended{Intended: intended}
	return encode(i, event)
}

// encodeWithdrawn returns the record that withdraws an intent. A withdrawal means that no phone
// rang for the call of the intent.
func encodeWithdrawn(i store.Intent) (*kgo.Record, error) {
	event := newEvent(i)
	event.Event = &eventv1.DialIntent_Withdrawn{Withdrawn: &eventv1.DialIntentWithdrawn{}}
	return encode(i, event)
}

func newEvent(i store.Intent) *eventv1.DialIntent {
	return &eventv1.DialIntent{
		CallRequestId: i.CallRequestID.String(), WorkspaceId: i.WorkspaceID.String(), CallId: i.CallID.String(),
		InstanceId: i.InstanceID.String(), OccurredAt: timestamppb.New(i.At),
	}
}

func encode(i store.Intent, event *eventv1.DialIntent) (*kgo.Record, error) {
	value, err := proto.Marshal(event)
	if err != nil {
		return nil, fmt.Errorf("encode intent of call %s: %w", i.CallID, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make event id: %w", err)
	}
	key := i.CallRequestID.String()
	record := &kgo.Record{Topic: kafka.DialIntents.Name, Key: []byte(key), Value: value}
	for name, value := range map[string]string{
		kafka.HeaderSpecVersion: "1.0",
		kafka.HeaderID:          id.String(),
		kafka.HeaderSource:      source,
		kafka.HeaderTime:        i.At.UTC().Format(time.RFC3339Nano),
		kafka.HeaderType:        string(event.ProtoReflect().Descriptor().FullName()),
		kafka.HeaderSubject:     key,
		kafka.HeaderKey:         key,
		kafka.HeaderWorkspaceID: i.WorkspaceID.String(),
		kafka.HeaderContentType: "application/protobuf",
	} {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return record, nil
}

// decode decodes a record. If withdrawn is true, the record withdraws an earlier intent of the same
// call.
func decode(rec kafka.Record) (i store.Intent, withdrawn bool, err error) {
	var event eventv1.DialIntent
	if err := rec.Decode(&event); err != nil {
		return i, false, err
	}
	if event.GetIntended() == nil && event.GetWithdrawn() == nil {
		return i, false, errors.New("the event is newer than this build")
	}
	for _, field := range []struct {
		name, text string
		into       *uuid.UUID
	}{
		{"call_request_id", event.GetCallRequestId(), &i.CallRequestID},
		{"workspace_id", event.GetWorkspaceId(), &i.WorkspaceID},
		{"call_id", event.GetCallId(), &i.CallID},
		{"instance_id", event.GetInstanceId(), &i.InstanceID},
	} {
		if *field.into, err = uuid.Parse(field.text); err != nil {
			return i, false, fmt.Errorf("read %s of an intent: %w", field.name, err)
		}
	}
	i.At = event.GetOccurredAt().AsTime()
	intended := event.GetIntended()
	if intended == nil {
		return i, event.GetWithdrawn() != nil, nil
	}
	i.From, i.To, i.Trunk = intended.GetFrom(), intended.GetToE164(), intended.GetTrunk()
	i.TimeZone, i.MaxCallSeconds = intended.GetTimeZone(), intended.GetMaxCallSeconds()
	i.ByPerson = intended.GetByPerson()
	if i.AgentID, err = uuid.Parse(intended.GetAgentId()); err != nil {
		return i, false, fmt.Errorf("read agent_id of an intent: %w", err)
	}
	if contact, err := uuid.Parse(intended.GetContactId()); err == nil {
		i.ContactID = &contact
	}
	if at := intended.GetQueuedAt(); at != nil {
		queued := at.AsTime()
		i.QueuedAt = &queued
	}
	return i, false, nil
}
