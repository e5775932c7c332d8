package siptrace

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

const (
	answerInterval = 500 * time.Millisecond
	// cleanupInterval is the time between two deletions of old trace requests.
	cleanupInterval = time.Minute
	// roundTimeout limits how long answering all pending trace requests takes.
	roundTimeout = 4 * time.Second
)

// Request is a trace request, an operator's request for the recorded SIP messages of a trunk. Each
// replica answers it with the messages that it recorded.
type Request struct {
	ID      uuid.UUID `db:"request_id"`
	TrunkID uuid.UUID `db:"trunk_id"`
	// CallID selects the messages with this Call-ID. If empty, all messages are selected.
	CallID string `db:"sip_call_id"`
}

// Store passes trace requests to all processes, and stores their answers.
type Store interface {
	// Pending returns the trace requests that the owner, a process, has not answered.
	Pending(ctx context.Context, owner uuid.UUID) ([]Request, error)
	Answer(ctx context.Context, request, owner uuid.UUID, messages []Message) error
	// DeleteOld deletes trace requests that are older than a minute, and their answers. Only a process
	// that was killed leaves such requests.
	DeleteOld(ctx context.Context) error
}

// Job answers the trace requests of operators with the messages that this process recorded.
type Job struct {
	recorder *Recorder
	store    Store
	owner    uuid.UUID
}

// NewJob returns a job for the process whose id is owner.
func NewJob(recorder *Recorder, store Store, owner uuid.UUID) *Job {
	return &Job{recorder: recorder, store: store, owner: owner}
}

// Run answers trace requests until ctx ends, but only while a trunk is recorded. At the start and
// once a minute, it deletes old trace requests, because a killed process cannot delete its own.
func (j *Job) Run(ctx context.Context) error {
	ticker, cleanups := time.NewTicker(answerInterval), time.NewTicker(cleanupInterval)
	defer ticker.Stop()
	defer cleanups.Stop()
	j.deleteOld(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-cleanups.C:
			j.deleteOld(ctx)
			continue
		case <-ticker.C:
		}
		if !j.recorder.IsRecording() {
			continue
		}
		if err := j.answer(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "requests for SIP traces not answered", "error", err)
		}
	}
}

func (j *Job) deleteOld(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	if err := j.store.DeleteOld(ctx); err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "old requests for SIP traces not deleted", "error", err)
	}
}

func (j *Job) answer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	pending, err := j.store.Pending(ctx, j.owner)
	if err != nil {
		return err
	}
	for _, one := range pending {
		if err := j.store.Answer(ctx, one.ID, j.owner, j.recorder.Messages(one.TrunkID, one.CallID)); err != nil {
			return err
		}
	}
	return nil
}
