package siptrace

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

const (
	every = 500 * time.Millisecond
	// roundTimeout bounds the answers to all requests of one round.
	roundTimeout = 4 * time.Second
)

// Request is an operator's request for the messages of a trunk.
type Request struct {
	ID      uuid.UUID `db:"request_id"`
	TrunkID uuid.UUID `db:"trunk_id"`
	// CallID selects the messages with this Call-ID; empty: all.
	CallID string `db:"sip_call_id"`
}

// Store passes requests to all processes, and their answers back.
type Store interface {
	// Pending returns the requests that a process has not answered.
	Pending(ctx context.Context, owner uuid.UUID) ([]Request, error)
	Answer(ctx context.Context, request, owner uuid.UUID, messages []Message) error
}

// Job answers the requests of operators with what this process recorded.
type Job struct {
	recorder *Recorder
	store    Store
	owner    uuid.UUID
}

// NewJob returns a job for the process with the given owner id.
func NewJob(recorder *Recorder, store Store, owner uuid.UUID) *Job {
	return &Job{recorder: recorder, store: store, owner: owner}
}

// Run works until ctx ends. It reads the database only while a trunk is followed.
func (j *Job) Run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !j.recorder.On() {
			continue
		}
		if err := j.answer(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "SIP trace requests not answered", "error", err)
		}
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
