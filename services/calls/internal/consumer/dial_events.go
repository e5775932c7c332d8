package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

type report struct {
	event *eventv1.DialEvent
	// requestID is nil for an inbound call. call is nil if the event contains no call.
	requestID *uuid.UUID
	call      *callstate.Call
	analysis  *callstate.Analysis
	// erasure is the id of the erasure of an inbound caller. It is nil if the event orders no
	// erasure.
	erasure *uuid.UUID
}

// onDialEvents applies events of the dialer to their requests and calls. The batch contains the
// events of each call in order. A row that several events change is written only once.
func (c *Consumer) onDialEvents(
	ctx context.Context, tx pgx.Tx, batch []inbox.Record,
) (outcome inbox.Outcome, err error) {
	outcome.Results = make([]inbox.Result, len(batch))
	reports, wanted := make([]report, len(batch)), store.Wanted{}
	for i, rec := range batch {
		reports[i], err = read(rec.Record)
		if outcome.Results[i], err = inbox.ResultOf(err); err != nil {
			return outcome, err
		}
		wanted.Partitions = append(wanted.Partitions, rec.Partition)
		if id := reports[i].requestID; id != nil {
			rec.Span.SetAttributes(telemetry.CallRequestID(id.String()))
			wanted.Requests = append(wanted.Requests, *id)
		}
		if call := reports[i].call; call != nil {
			rec.Span.SetAttributes(telemetry.CallID(call.ID.String()))
			wanted.Calls = append(wanted.Calls, call.ID)
			if call.CallRequestID == nil {
				wanted.InboundCalls = append(wanted.InboundCalls, call.ID)
			}
			if reports[i].analysis != nil || call.RecordingKey != nil {
				wanted.Workspaces = append(wanted.Workspaces, call.WorkspaceID)
			}
		}
	}
	if slices.ContainsFunc(outcome.Results, inbox.Result.IsParked) {
		return outcome, nil
	}
	f, err := c.lock(ctx, tx, wanted)
	if err != nil {
		return outcome, err
	}
	for i, r := range reports {
		if outcome.Results[i], err = inbox.ResultOf(c.fold(batch[i].Context(ctx), f,
			r)); err != nil || outcome.Results[i].IsParked() {
			return outcome, err
		}
	}
	return c.writeFold(ctx, tx, f, outcome)
}

// countedFold is a store.Fold with counters. The counters are incremented after the commit.
type countedFold struct {
	*store.Fold
	counters []prometheus.Counter
	// wakeRelay is true if the transaction writes events that are not part of the Fold.
	wakeRelay bool
}

func (f *countedFold) count(c prometheus.Counter) { f.counters = append(f.counters, c) }

func (c *Consumer) lock(ctx context.Context, tx pgx.Tx, wanted store.Wanted) (*countedFold, error) {
	f, err := c.store.Lock(ctx, tx, wanted)
	return &countedFold{Fold: f}, err
}

// writeFold writes the rows that the events changed. After the commit it increments the counters
// and, if there are new events, wakes the relay.
func (c *Consumer) writeFold(ctx context.Context, tx pgx.Tx, f *countedFold,
	outcome inbox.Outcome) (inbox.Outcome, error) {
	wake := f.wakeRelay || f.HasEvents()
	outcome.OnCommit = func() {
		for _, counter := range f.counters {
			counter.Inc()
		}
		if wake {
			c.wakeRelay()
		}
	}
	return outcome, f.Write(ctx, tx)
}

func read(rec kafka.Record) (r report, err error) {
	r.event = &eventv1.DialEvent{}
	if err := rec.Decode(r.event); err != nil {
		return r, err
	}
	if r.event.GetEvent() == nil {
		return r, kafka.Parkf("the dial event is newer than this build")
	}
	if id := r.event.GetCallRequestId(); id != "" {
		requestID, err := uuid.Parse(id)
		if err != nil {
			return r, kafka.Parkf("read call request id: %w", err)
		}
		r.requestID = &requestID
	}
	if r.event.GetCall() == nil {
		return r, nil
	}
	call, err := callstate.FromDialer(r.event)
	if err != nil {
		return r, kafka.Parkf("%w", err)
	}
	r.call = &call
	if analysed := r.event.GetAnalysed(); analysed != nil {
		analysis, err := callstate.AnalysisFrom(analysed)
		if err != nil {
			return r, kafka.Parkf("read analysis of call %s: %w", call.ID, err)
		}
		r.analysis = &analysis
	}
	if erased := r.event.GetErased(); erased != nil {
		id, err := uuid.Parse(erased.GetErasureId())
		if err != nil {
			return r, kafka.Parkf("read erasure of call %s: %w", call.ID, err)
		}
		r.erasure = &id
	}
	return r, nil
}

func (c *Consumer) fold(ctx context.Context, f *countedFold, r report) error {
	if r.requestID != nil {
		if err := foldRequest(ctx, f.Fold, r); err != nil {
			return err
		}
	}
	if r.call == nil {
		return nil
	}
	return c.foldCall(ctx, f, r)
}

func foldRequest(ctx context.Context, f *store.Fold, r report) error {
	req := f.Request(*r.requestID)
	if req == nil {
		if r.call == nil {
			return kafka.Skipf("call request %s does not exist in this database", *r.requestID)
		}
		return nil // without a stored request, foldCall stores only the call
	}
	at, before := r.event.GetOccurredAt().AsTime(), req.Status
	var changed bool
	switch e := r.event.GetEvent().(type) {
	case *eventv1.DialEvent_Withdrawn:
		if req.Cancel(at) { // a cancel withdrew the request and then failed
			return f.SaveCanceled(ctx, req, at)
		}
		return nil
	case *eventv1.DialEvent_Blocked:
		changed = req.Block(callstate.Ending{Code: e.Blocked.GetErrorCode(), Detail: e.Blocked.GetErrorDetail()}, at)
	case *eventv1.DialEvent_Failed:
		changed = req.Fail(callstate.Ending{Code: e.Failed.GetErrorCode(), Detail: e.Failed.GetErrorDetail()}, at)
	case *eventv1.DialEvent_Rescheduled:
		if released := e.Rescheduled.GetReleasedAttempt(); released > 0 {
			changed = req.Release(released)
			break
		}
		changed = req.Move(e.Rescheduled.GetScheduledFor().AsTime())
	case *eventv1.DialEvent_Dialing:
		changed = req.Dial(e.Dialing.GetAttempt())
	}
	if r.call != nil {
		changed = follow(req, r, at) || changed
	}
	switch {
	case changed && req.Status.Final() && !before.Final():
		return f.SaveEnded(ctx, req)
	case changed:
		f.SaveRequest(req)
	}
	return nil
}

func follow(req *callstate.Request, r report, at time.Time) bool {
	why := callstate.Ending{Code: r.event.GetCall().GetErrorCode(), Detail: r.event.GetCall().GetErrorDetail()}
	return req.Follow(r.call, why, at)
}

// foldCall applies the event to its call. If the call is unknown, foldCall creates the call,
// because earlier events can be missing.
func (c *Consumer) foldCall(ctx context.Context, f *countedFold, r report) error {
	known := f.Call(r.call.ID)
	var oldStatus callstate.Status
	var changed bool
	if known != nil {
		if known.WorkspaceID != r.call.WorkspaceID {
			return kafka.Parkf("call %s belongs to another workspace", r.call.ID)
		}
		oldStatus = known.Status
		changed = known.Apply(*r.call)
	} else {
		var err error
		if known, err = newCall(f.Fold, *r.call); err != nil {
			return err
		}
		changed = true
	}
	if r.analysis != nil {
		if !f.Transcribed(known.WorkspaceID) {
			r.analysis.Transcript = nil // a transcript is stored only if the workspace shows transcripts
		}
		added, late := known.Analyse(*r.analysis)
		changed = changed || added
		if late {
			f.count(c.late.WithLabelValues("analysis"))
		}
	}
	if r.erasure != nil {
		changed = known.Erase(f.Now) || changed
	}
	if changed {
		if err := c.saveCall(ctx, f, known, oldStatus); err != nil {
			return err
		}
	}
	if r.erasure == nil {
		return nil
	}
	return f.ReportErased(ctx, known, *r.erasure)
}

// newCall returns a new call from the first dial event of the call that arrived. The external
// reference, the charge (if known) and the time of the erasure are copied from the call's request.
// The charge of an inbound call can have arrived before the call.
func newCall(f *store.Fold, call callstate.Call) (*callstate.Call, error) {
	if call.CallRequestID == nil {
		call.Credits = f.TakeInboundCharge(call.ID, call.WorkspaceID)
		call.ChargeSettled = call.Credits != nil
		return &call, nil
	}
	req := f.Request(*call.CallRequestID)
	if req == nil {
		return &call, nil
	}
	if req.WorkspaceID != call.WorkspaceID {
		return nil, kafka.Parkf("call request %s belongs to another workspace", req.ID)
	}
	call.ExternalRef = req.ExternalRef
	call.ChargeSettled, call.Credits, call.ErasedAt = req.ChargeSettled, req.Credits, req.ErasedAt
	return &call, nil
}

func (c *Consumer) saveCall(ctx context.Context, f *countedFold, known *callstate.Call,
	oldStatus callstate.Status) error {
	known.Traceparent = telemetry.Carrier(ctx)
	if known.Status.Terminal() && !oldStatus.Terminal() {
		cause := "none"
		if known.HangupCause != nil {
			cause = *known.HangupCause
		}
		f.count(c.ended.WithLabelValues(known.Direction, string(known.Status), cause))
	}
	return f.SaveCall(ctx, known, known.Announce(oldStatus, f.Now, c.waits))
}
