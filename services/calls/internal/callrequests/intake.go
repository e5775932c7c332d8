// Package callrequests creates, cancels and republishes call requests. It applies the order of
// checks of POST /v1/calls (docs/reference/api/call-requests.md#order-of-checks-in-post-v1calls).
// contacts-compliance decides whether a number may be called, and billing-wallet reserves the
// price.
package callrequests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/peers"
	"ringfence.dev/services/calls/internal/store"
)

const (
	// commitTimeout limits the steps that continue after a client has disconnected: the hold and
	// the commit.
	commitTimeout = 10 * time.Second
	// maxBacklog limits the age of the oldest unpublished event. If that event is older, new
	// requests are refused with 503.
	maxBacklog = 10 * time.Minute
)

// Config contains the time limits of an idempotency claim.
type Config struct {
	Lease time.Duration `env:"IDEMPOTENCY_LEASE" envDefault:"30s" help:"How long a POST owns its idempotency key. If the POST has not ended by then, another POST with the same key takes over and continues with the same request id. If it is shorter than a slow POST, two POSTs work on one request, and only one of them stores it."`
	Wait  time.Duration `env:"IDEMPOTENCY_WAIT" envDefault:"10s" help:"How long a repeated POST waits for the first POST with the same idempotency key. After that time, it gets the response 503."`
}

// Intake creates call requests.
type Intake struct {
	cfg        Config
	store      *store.Store
	peers      *peers.Clients
	wake       func()
	backlogAge func() time.Duration
	now        func() time.Time
	placed     *prometheus.CounterVec
	// mismatchedReplays counts replays whose body differs from the original body of the idempotency
	// key.
	mismatchedReplays prometheus.Counter
}

// New returns an intake. The intake calls wake after each commit that wrote an event, so that the
// relay publishes the event. backlogAge returns the age of the oldest unpublished event.
func New(cfg Config, st *store.Store, peers *peers.Clients, wake func(), backlogAge func() time.Duration,
	metrics prometheus.Registerer) *Intake {
	in := &Intake{
		cfg: cfg, store: st, peers: peers, wake: wake, backlogAge: backlogAge, now: time.Now,
		placed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_calls_create_requests_total",
			Help: "Requests to POST /v1/calls by result: accepted, replayed, or the error code.",
		}, []string{"result"}),
		mismatchedReplays: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_calls_mismatched_replays_total",
			Help: "Replays of POST /v1/calls whose body differs from the body of the original request.",
		}),
	}
	metrics.MustRegister(in.placed, in.mismatchedReplays)
	in.placed.WithLabelValues("accepted")
	in.placed.WithLabelValues("replayed")
	return in
}

// Create creates a call request from the body of POST /v1/calls. headerKeys are the values of the
// header Idempotency-Key. A key in the body has precedence over the header. If the key was used
// before, Create returns the original request, and replayed is true.
func (in *Intake) Create(ctx context.Context, workspaceID uuid.UUID, body map[string]json.RawMessage,
	headerKeys []string) (req callstate.Request, replayed bool, err error) {
	req, replayed, err = in.create(ctx, workspaceID, body, headerKeys)
	in.placed.WithLabelValues(result(replayed, err)).Inc()
	return req, replayed, err
}

func (in *Intake) create(ctx context.Context, workspaceID uuid.UUID, body map[string]json.RawMessage,
	headerKeys []string) (callstate.Request, bool, error) {
	key, err := readKey(body, headerKeys)
	if err != nil {
		return callstate.Request{}, false, err
	}
	if in.backlogAge() > maxBacklog {
		return callstate.Request{}, false, apierr.Unavailable("The event stream")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return callstate.Request{}, false, fmt.Errorf("make request id: %w", err)
	}
	if key == "" {
		return in.checkAndStore(ctx, workspaceID, id, body, nil)
	}
	claim, original, err := in.claimKey(ctx, store.Claim{WorkspaceID: workspaceID, Key: key, RequestID: id},
		bodyFingerprint(body))
	if err != nil {
		return callstate.Request{}, false, err
	}
	if original != nil {
		annotateRequestID(ctx, original.ID)
		return *original, true, nil
	}
	req, replayed, err := in.checkAndStore(ctx, workspaceID, claim.RequestID, body, &claim)
	if err != nil {
		in.releaseKey(ctx, claim, err)
	}
	return req, replayed, err
}

// checkAndStore runs the checks in the order of the API reference. If all checks allow the request,
// checkAndStore stores it.
func (in *Intake) checkAndStore(ctx context.Context, workspaceID, id uuid.UUID, body map[string]json.RawMessage,
	claim *store.Claim) (callstate.Request, bool, error) {
	annotateRequestID(ctx, id)
	now := in.now().UTC().Truncate(time.Millisecond)
	order, err := readOrder(body, now)
	if err != nil {
		return callstate.Request{}, false, err
	}
	known, err := in.checkLocalData(ctx, workspaceID, id, order)
	if err != nil {
		return callstate.Request{}, false, err
	}
	req := callstate.Request{
		ID: id, WorkspaceID: workspaceID, Status: callstate.RequestQueued, To: order.To, AgentID: order.AgentID, ExternalRef: order.ExternalRef,
		ScheduledFor: now, ScheduleIfOutsideHours: order.ScheduleIfOutsideHours != nil && *order.ScheduleIfOutsideHours,
		MaxCallSeconds: *known.MaxCallSeconds, QueuedAt: now, Traceparent: telemetry.Carrier(ctx),
	}
	_, req.ByPerson = serviceauth.CallerFrom(ctx).Person()
	if order.ScheduledFor != nil {
		req.ScheduledFor = order.ScheduledFor.Time
	}
	if err := in.preCheck(ctx, order, known.Destinations, &req); err != nil {
		return callstate.Request{}, false, err
	}
	// From here on a hold can exist. A disconnect of the client must not leave a hold without a
	// request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if err := in.placeHold(ctx, &req); err != nil {
		return callstate.Request{}, false, err
	}
	return in.storeRequest(ctx, req, claim, now)
}

func (in *Intake) storeRequest(ctx context.Context, req callstate.Request, claim *store.Claim,
	now time.Time) (callstate.Request, bool, error) {
	placed, err := in.store.Create(ctx, req, claim, now)
	if errors.Is(err, store.ErrNotCreated) {
		return in.existingRequest(ctx, req)
	}
	if err != nil {
		return callstate.Request{}, false, err
	}
	in.wake()
	failpoint.Inject("calls: after commit")
	return placed, false, nil
}

// existingRequest handles an id that could not be used for a new request. If another POST with the
// same claim stored a request with this id, existingRequest returns that request. Otherwise it
// returns an error, because the person was erased or the id was abandoned (Store.Unconfirmed).
func (in *Intake) existingRequest(ctx context.Context, req callstate.Request) (callstate.Request, bool, error) {
	original, err := in.store.Request(ctx, req.WorkspaceID, req.ID)
	if errors.Is(err, pg.ErrNotFound) {
		erased, err := in.store.ErasedSince(ctx, req)
		if err == nil && erased {
			err = apierr.Unprocessable("consent_withdrawn", "The person's data was erased while this was being placed, and their consent with it.")
		}
		if err != nil {
			return callstate.Request{}, false, err
		}
		return callstate.Request{}, false, apierr.Unavailable("POST /v1/calls")
	}
	return original, err == nil, err
}

func annotateRequestID(ctx context.Context, id uuid.UUID) {
	trace.SpanFromContext(ctx).SetAttributes(telemetry.CallRequestID(id.String()))
	telemetry.Annotate(ctx, "call_request_id", id.String())
}

func result(replayed bool, err error) string {
	var refusal *apierr.Error
	switch {
	case errors.As(err, &refusal):
		return refusal.Code
	case err != nil:
		return "internal_error"
	case replayed:
		return "replayed"
	default:
		return "accepted"
	}
}
