package dbfailover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// checkInterval is the time between two checks of the database server.
	checkInterval = time.Second
	// checkTimeout limits one check.
	checkTimeout = 5 * time.Second
	// advanceInterval is the time between two advances of the stored positions.
	advanceInterval = 10 * time.Second
	// settleWait is how long the reconciler waits for the other dialers to reconnect and to
	// withdraw intents. The wait is never shorter than the instance lease. After the lease a
	// process has either sent a heartbeat to the new server, or may not dial.
	settleWait = 5 * time.Second
	// batchSize is the number of requests whose intents one transaction settles.
	batchSize = 500
)

// ErrConfirmationNeeded is returned if dial-intents.v1 lacks records since the stored position, or
// contains a record that this build cannot decode. Nothing is dialed until an operator has run
// `dialer accept-intents`.
var ErrConfirmationNeeded = errors.New("an operator must confirm with `dialer accept-intents`")

// uncheckedServer is not the identity of any server. The store claims nothing while UseServer is
// set to it.
const uncheckedServer = "not checked yet"

// These are the reasons why nothing is dialed, as values of the label reason.
const (
	reasonReconciliation = "reconciliation"
	reasonConfirmation   = "confirmation"
	reasonIntents        = "intents"
)

// Reconciler settles intents whose fences are missing in the database. It permits the store to
// claim and fence only on a server that was reconciled.
type Reconciler struct {
	cfg       kafka.Config
	client    *kafka.Client
	store     *store.Store
	publisher *Publisher
	settled   *prometheus.CounterVec
	stopped   *prometheus.GaugeVec
	// pending is the reason why nothing is dialed. It is nil if the server is reconciled.
	pending  atomic.Pointer[string]
	advanced time.Time
	// next contains the positions that will be stored next. It is nil if the end of the topic must
	// be read first.
	next *positions
	// used is the server that was last passed to the store. It is empty before the first check.
	used string
	// changed is called after the server has changed and is reconciled.
	changed func()
	// wait returns when the other dialers have had time to reconnect and to withdraw their intents.
	wait func(context.Context) error
}

// NewReconciler returns a reconciler for the database of the store. lease is the instance lease of
// all dialers. The store claims and fences nothing until Run has checked the server.
func NewReconciler(
	cfg kafka.Config, publisher *Publisher, st *store.Store, lease time.Duration, metrics prometheus.Registerer,
) *Reconciler {
	r := &Reconciler{
		cfg: cfg, client: publisher.client, store: st, publisher: publisher, changed: func() {},
		wait: func(ctx context.Context) error { return pause(ctx, max(settleWait, lease)) },
		settled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringfence_dialer_reconciled_requests_total",
			Help: "Requests whose fence the database had lost, by result: restored (the call is live again), failed.",
		}, []string{"result"}),
		stopped: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringfence_dialer_dialing_stopped",
			Help: "1 while this process dials nothing for the reason, otherwise 0.",
		}, []string{"reason"}),
	}
	metrics.MustRegister(r.settled, r.stopped)
	for _, result := range []string{"restored", "failed"} {
		r.settled.WithLabelValues(result)
	}
	reason := reasonReconciliation
	r.pending.Store(&reason)
	r.report()
	st.UseServer(uncheckedServer)
	return r
}

// Ready returns nil if requests may be dialed: the server is reconciled, and intents can be
// published.
func (r *Reconciler) Ready() error {
	if reason := r.pending.Load(); reason != nil {
		return fmt.Errorf("the database is not reconciled with %s: waiting for %s", kafka.DialIntents.Name, *reason)
	}
	return r.publisher.Ready()
}

// OnChange sets a function that is called each time the server has changed and is reconciled. It
// must be called before Run.
func (r *Reconciler) OnChange(f func()) { r.changed = f }

// MayDial reports whether requests may be claimed.
func (r *Reconciler) MayDial() bool { return r.Ready() == nil }

// Reconciled reports whether the server is reconciled, so that INVITEs of fenced calls may be sent.
// They may also be sent while only the circuit of the publisher is open.
func (r *Reconciler) Reconciled() bool { return r.pending.Load() == nil }

func (r *Reconciler) report() {
	for _, reason := range []string{reasonReconciliation, reasonConfirmation} {
		value := 0.0
		if pending := r.pending.Load(); pending != nil && *pending == reason {
			value = 1
		}
		r.stopped.WithLabelValues(reason).Set(value)
	}
	value := 0.0
	if r.publisher.Ready() != nil {
		value = 1
	}
	r.stopped.WithLabelValues(reasonIntents).Set(value)
}

// Run checks the server once a second, and reconciles when it has changed.
func (r *Reconciler) Run(ctx context.Context) error {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		if err := r.check(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "database server check or reconciliation failed", "error", err)
		}
		r.report()
		select {
		case <-ctx.Done():
			r.leave(ctx)
			return nil
		case <-ticker.C:
		}
	}
}

// leave advances the positions a last time, so that they are at the end of the topic if every
// dialer stops.
func (r *Reconciler) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	if state, err := r.store.ServerState(ctx); err == nil && state.Server == state.Reconciled {
		r.next = nil
		_ = r.advance(ctx, state) // after an error, the next process reads more intents
	}
}

func (r *Reconciler) check(ctx context.Context) error {
	looking, cancel := context.WithTimeout(ctx, checkTimeout)
	state, err := r.store.ServerState(looking)
	cancel()
	if err != nil {
		return err // other statements on this database also fail
	}
	if state.Server != state.Reconciled {
		r.stop(ctx, state)
		if err := r.reconcile(ctx, state); err != nil {
			reason := reasonReconciliation
			if errors.Is(err, ErrConfirmationNeeded) {
				reason = reasonConfirmation
			}
			r.pending.Store(&reason)
			return err
		}
		r.advanced, r.next = time.Now(), nil
	}
	r.store.UseServer(state.Server)
	r.pending.Store(nil)
	if r.used != "" && r.used != state.Server {
		r.changed()
	}
	r.used = state.Server
	if r.next == nil && time.Since(r.advanced) < advanceInterval {
		return nil
	}
	return r.advance(ctx, state)
}

func (r *Reconciler) stop(ctx context.Context, state store.ServerState) {
	if r.pending.Load() == nil {
		slog.WarnContext(ctx, "dialing stopped, database server has changed", "server", state.Server,
			"before", state.Reconciled)
		reason := reasonReconciliation
		r.pending.Store(&reason)
		r.report()
	}
}

// positions contains the end of the topic, and the state of the server that was read after that
// end.
type positions struct {
	state  store.ServerState
	bounds kafka.Bounds
}

// advance moves the positions to an end of the topic when every intent below that end is resolved.
// Until then it keeps the same end: the claims from before that end are gone after the claim lease,
// and the fenced calls from before it ring or end. A later end would have later claims and calls.
func (r *Reconciler) advance(ctx context.Context, state store.ServerState) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if r.next == nil || r.next.state.Server != state.Server || r.next.state.TopicID != state.TopicID {
		bounds, err := kafka.ReadBounds(ctx, r.client, kafka.DialIntents)
		if err != nil {
			return err
		}
		if state.TopicID != bounds.ID {
			slog.WarnContext(ctx, "topic replaced by a new topic with the same name", "topic", kafka.DialIntents.Name, "topic_id", bounds.ID,
				"before", state.TopicID)
		}
		after, err := r.store.ServerState(ctx)
		if err != nil {
			return err
		}
		state.Now = after.Now
		r.next = &positions{state: state, bounds: bounds}
	}
	moved, err := r.store.AdvanceIntents(ctx, state.Server, r.next.bounds.ID, r.next.state.Now, r.next.bounds.End)
	if err == nil && moved {
		r.advanced, r.next = time.Now(), nil
	}
	return err
}

// reconcile settles the intents whose fences are missing in the database. The caller must have read
// state before. The end of the topic, which reconcile reads now, is therefore behind every intent
// whose fence committed on an earlier server.
func (r *Reconciler) reconcile(ctx context.Context, state store.ServerState) error {
	bounds, err := kafka.ReadBounds(ctx, r.client, kafka.DialIntents)
	if err != nil {
		return err
	}
	from, err := r.start(ctx, state, bounds)
	if err != nil {
		return err
	}
	found := newIntentLog()
	found.accepted = state.Reconciled == "" && state.TopicID != uuid.Nil // AcceptTopic stored this
	if err := r.read(ctx, from, bounds.End, found); err != nil {
		return err
	}
	open, err := r.open(ctx, found)
	if err != nil {
		return err
	}
	if len(open) > 0 {
		slog.WarnContext(ctx, "dial intents without a fence found in the database", "requests", len(open), "server", state.Server)
		if err := r.settle(ctx, state.Server, found, bounds.End); err != nil {
			return err
		}
	}
	if err := r.store.SetReconciled(ctx, state.Server, bounds.ID, bounds.End); err != nil {
		return err
	}
	slog.InfoContext(ctx, "database reconciled with dial intents", "server", state.Server, "unknown", len(open))
	return nil
}

// start returns the offsets from which the topic is read. It returns ErrConfirmationNeeded if the
// topic lacks records since these offsets.
func (r *Reconciler) start(ctx context.Context, state store.ServerState, bounds kafka.Bounds) (kafka.Offsets, error) {
	if state.TopicID != uuid.Nil && state.TopicID != bounds.ID {
		return nil, fmt.Errorf("topic %s has the id %s, and the database was reconciled with %s: %w",
			kafka.DialIntents.Name, bounds.ID, state.TopicID, ErrConfirmationNeeded)
	}
	positions, err := r.store.IntentPositions(ctx)
	if err != nil {
		return nil, err
	}
	from := kafka.Offsets{}
	for partition, oldest := range bounds.Start {
		from[partition] = positions[partition]
		switch {
		case oldest > from[partition]:
			return nil, fmt.Errorf("partition %d of %s begins at %d, and the database was reconciled up to %d: %w",
				partition, kafka.DialIntents.Name, oldest, from[partition], ErrConfirmationNeeded)
		case from[partition] > bounds.End[partition]:
			return nil, fmt.Errorf("partition %d of %s ends at %d, and the database was reconciled up to %d: %w",
				partition, kafka.DialIntents.Name, bounds.End[partition], from[partition], ErrConfirmationNeeded)
		}
	}
	return from, nil
}

// intentLog contains the intents that were read. The intents of each request are in the order of
// the topic.
type intentLog struct {
	intents   map[uuid.UUID][]store.Intent
	withdrawn map[uuid.UUID]bool
	// accepted means that an operator has run `dialer accept-intents`, so that records that cannot
	// be decoded are skipped.
	accepted bool
	// onlyWithdrawals means that add ignores intents.
	onlyWithdrawals bool
}

func newIntentLog() *intentLog {
	return &intentLog{intents: map[uuid.UUID][]store.Intent{}, withdrawn: map[uuid.UUID]bool{}}
}

func (l *intentLog) add(i store.Intent, isWithdrawal bool) {
	if isWithdrawal {
		l.withdrawn[i.CallID] = true
		return
	}
	if !l.onlyWithdrawals {
		l.intents[i.CallRequestID] = append(l.intents[i.CallRequestID], i)
	}
}

// valid returns the valid intents of a request, the newest first. Of each process, only the newest
// intent that is not withdrawn is valid: the process publishes the next intent of the request after
// the dial of the earlier intent has ended. Intents of other processes stay valid. A process that
// lost its claim can append its intent after the intent of the call that rang.
func (l *intentLog) valid(request uuid.UUID) (valid []store.Intent) {
	seen := map[uuid.UUID]bool{}
	for _, i := range slices.Backward(l.intents[request]) {
		if !l.withdrawn[i.CallID] && !seen[i.InstanceID] {
			seen[i.InstanceID] = true
			valid = append(valid, i)
		}
	}
	return valid
}

// open returns the valid intents that have no fence, by request. The newest intent of a request is
// the first.
func (r *Reconciler) open(ctx context.Context, found *intentLog) (open [][]store.Intent, err error) {
	for requests := range slices.Chunk(slices.Collect(maps.Keys(found.intents)), batchSize) {
		var ids []uuid.UUID
		for _, request := range requests {
			for _, i := range found.valid(request) {
				ids = append(ids, i.CallID)
			}
		}
		unfenced, err := r.store.Unfenced(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, request := range requests {
			intents := slices.DeleteFunc(found.valid(request), func(i store.Intent) bool {
				return !slices.Contains(unfenced, i.CallID)
			})
			if len(intents) > 0 {
				open = append(open, intents)
			}
		}
	}
	return open, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// settle waits for the other dialers, reads the withdrawals that they published meanwhile, and
// settles the intents that are still open. An intent behind the parameter end has no fence on an
// earlier server.
func (r *Reconciler) settle(ctx context.Context, server string, found *intentLog, end kafka.Offsets) error {
	if err := r.wait(ctx); err != nil {
		return err
	}
	later, err := kafka.ReadBounds(ctx, r.client, kafka.DialIntents)
	if err != nil {
		return err
	}
	found.onlyWithdrawals = true
	if err := r.read(ctx, end, later.End, found); err != nil {
		return err
	}
	open, err := r.open(ctx, found)
	if err != nil {
		return err
	}
	for requests := range slices.Chunk(open, batchSize) {
		settled, err := r.store.SettleIntents(ctx, server, slices.Concat(requests...))
		if err != nil {
			return err
		}
		r.settled.WithLabelValues("restored").Add(float64(settled.Restored))
		r.settled.WithLabelValues("failed").Add(float64(settled.Failed))
		slog.WarnContext(ctx, "dial intents settled", "restored", settled.Restored, "failed", settled.Failed)
	}
	return nil
}

// read adds the intents and withdrawals between the offsets to the log. It returns
// ErrConfirmationNeeded if it cannot decode a record: the record can be the intent of a call that
// rang, and that request must not be dialed again.
func (r *Reconciler) read(ctx context.Context, from, to kafka.Offsets, log *intentLog) error {
	return kafka.Scan(ctx, r.cfg, "dialer-reconciler", kafka.DialIntents, from, to, func(rec kafka.Record) error {
		i, withdrawn, err := decode(rec)
		switch {
		case err == nil:
			log.add(i, withdrawn)
		case log.accepted:
			slog.WarnContext(ctx, "undecodable dial intent skipped", "partition", rec.Partition, "offset", rec.Offset,
				"key", rec.Key, "error", err)
		default:
			return fmt.Errorf("read offset %d of partition %d of %s, key %q: %w: %w",
				rec.Offset, rec.Partition, kafka.DialIntents.Name, rec.Key, err, ErrConfirmationNeeded)
		}
		return nil
	})
}

// Accept makes the next reconciliation read the topic from its oldest records. It ignores the
// positions that were read before, and skips records that cannot be decoded. An operator calls
// Accept after ErrConfirmationNeeded.
func Accept(ctx context.Context, cfg kafka.Config, st *store.Store) (kafka.Bounds, error) {
	client, err := kafka.NewClient(cfg, "dialer-accept-intents", nil)
	if err != nil {
		return kafka.Bounds{}, err
	}
	defer client.Close()
	bounds, err := kafka.ReadBounds(ctx, client, kafka.DialIntents)
	if err != nil {
		return kafka.Bounds{}, err
	}
	return bounds, st.AcceptTopic(ctx, bounds.ID, bounds.Start)
}
