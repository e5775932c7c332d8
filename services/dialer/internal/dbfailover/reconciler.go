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
	// checkInterval is the time between two checks whether the database server has changed.
	checkInterval = time.Second
	checkTimeout  = 5 * time.Second
	// advanceInterval is the time between two advances of the stored positions.
	advanceInterval = 10 * time.Second
	// settleWait is how long the reconciler waits for the other dialers to reconnect and withdraw
	// their intents. It waits at least for the instance lease. After that, a process without a
	// heartbeat on the new database server may not dial any more.
	settleWait = 5 * time.Second
	// batchSize is the number of requests whose intents are settled in one transaction.
	batchSize = 500
)

// ErrConfirmationNeeded is returned if dial-intents.v1 has lost records after the stored positions,
// or contains a record that this version cannot decode. Nothing is dialed then until an operator
// has run `dialer accept-intents`.
var ErrConfirmationNeeded = errors.New("an operator must confirm with `dialer accept-intents`")

// uncheckedServer is passed to UseServer before the first check. It is the identity of no database
// server, so the store claims nothing.
const uncheckedServer = "not checked yet"

// Reasons why nothing is dialed, as values of the metric's label reason.
const (
	reasonReconciliation = "reconciliation"
	reasonConfirmation   = "confirmation"
	reasonIntents        = "intents"
)

// Reconciler settles the intents whose fences are missing in the database. It permits the store to
// claim requests and commit fences only on a database server that is reconciled.
type Reconciler struct {
	cfg       kafka.Config
	client    *kafka.Client
	store     *store.Store
	publisher *Publisher
	settled   *prometheus.CounterVec
	stopped   *prometheus.GaugeVec
	// stopReason is the reason why nothing may be dialed. It is nil if the database server is
	// reconciled.
	stopReason atomic.Pointer[string]
	advancedAt time.Time
	// nextPositions contains the end offsets of the topic that will be the next stored positions. If
	// nil, they must be read first.
	nextPositions *positions
	// usedServer is the database server that was last passed to UseServer, or "" before the first
	// check.
	usedServer string
	// announcedServer is the last server for which onChange was called before the reconciliation. If
	// the reconciliation is repeated, onChange is not called again.
	announcedServer string
	// onChange is called before and after another database server is reconciled.
	onChange func()
	// waitForDialers waits until the other dialers have had time to reconnect and withdraw their
	// intents.
	waitForDialers func(context.Context) error
}

// NewReconciler returns a reconciler for the database of the store. lease is the instance lease of
// all dialers. Until Run has checked the database server, the store claims no requests and commits
// no fences.
func NewReconciler(
	cfg kafka.Config, publisher *Publisher, st *store.Store, lease time.Duration, metrics prometheus.Registerer,
) *Reconciler {
	r := &Reconciler{
		cfg: cfg, client: publisher.client, store: st, publisher: publisher, onChange: func() {},
		waitForDialers: func(ctx context.Context) error { return pause(ctx, max(settleWait, lease)) },
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
	r.stopReason.Store(&reason)
	r.updateMetrics()
	st.UseServer(uncheckedServer)
	return r
}

// Ready returns nil if requests may be dialed: the database server is reconciled, and the
// publisher's circuit is closed.
func (r *Reconciler) Ready() error {
	if reason := r.stopReason.Load(); reason != nil {
		return fmt.Errorf("the database is not reconciled with %s: waiting for %s", kafka.DialIntents.Name, *reason)
	}
	return r.publisher.Ready()
}

// OnChange sets the function that stores lost data again after a change of the database server.
// The function is called before the reconciliation, which reads the live calls, and again after
// it. OnChange must be called before Run.
func (r *Reconciler) OnChange(f func()) { r.onChange = f }

// MayDial reports whether requests may be claimed.
func (r *Reconciler) MayDial() bool { return r.Ready() == nil }

// Reconciled reports whether the database server is reconciled. If so, INVITEs may be sent for
// calls whose fences are committed. The publisher's circuit does not matter for these calls,
// because their intents are already published.
func (r *Reconciler) Reconciled() bool { return r.stopReason.Load() == nil }

func (r *Reconciler) updateMetrics() {
	for _, reason := range []string{reasonReconciliation, reasonConfirmation} {
		value := 0.0
		if pending := r.stopReason.Load(); pending != nil && *pending == reason {
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

// Run checks once a second whether the database server has changed, until ctx ends. If it has, Run
// reconciles the new server.
func (r *Reconciler) Run(ctx context.Context) error {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		if err := r.checkServer(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "database server check or reconciliation failed", "error", err)
		}
		r.updateMetrics()
		select {
		case <-ctx.Done():
			r.advanceAtStop(ctx)
			return nil
		case <-ticker.C:
		}
	}
}

// advanceAtStop advances the stored positions when this process stops, so that the next process
// need not read many intents.
func (r *Reconciler) advanceAtStop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	if state, err := r.store.ServerState(ctx); err == nil && state.Server == state.Reconciled {
		r.nextPositions = nil
		_ = r.advancePositions(ctx, state) // after an error, the next process only reads more intents
	}
}

func (r *Reconciler) checkServer(ctx context.Context) error {
	looking, cancel := context.WithTimeout(ctx, checkTimeout)
	state, err := r.store.ServerState(looking)
	cancel()
	if err != nil {
		return err // dialing is not stopped here: if the database fails, each dial fails too
	}
	if state.Server != state.Reconciled {
		r.stopDialing(ctx, state)
		if r.usedServer != "" && r.usedServer != state.Server && r.announcedServer != state.Server {
			r.announcedServer = state.Server
			r.onChange()
		}
		if err := r.reconcileServer(ctx, state); err != nil {
			reason := reasonReconciliation
			if errors.Is(err, ErrConfirmationNeeded) {
				reason = reasonConfirmation
			}
			r.stopReason.Store(&reason)
			return err
		}
		r.advancedAt, r.nextPositions = time.Now(), nil
	}
	r.store.UseServer(state.Server)
	if r.usedServer != "" && r.usedServer != state.Server {
		r.onChange()
	}
	r.usedServer = state.Server
	r.stopReason.Store(nil)
	if r.nextPositions == nil && time.Since(r.advancedAt) < advanceInterval {
		return nil
	}
	return r.advancePositions(ctx, state)
}

func (r *Reconciler) stopDialing(ctx context.Context, state store.ServerState) {
	if r.stopReason.Load() == nil {
		slog.WarnContext(ctx, "dialing stopped, database server has changed", "server", state.Server,
			"previous_server", state.Reconciled)
		reason := reasonReconciliation
		r.stopReason.Store(&reason)
		r.updateMetrics()
	}
}

// positions contains the end offsets of the topic (bounds). state.Now was read from the database
// after the offsets.
type positions struct {
	state  store.ServerState
	bounds kafka.Bounds
}

// advancePositions stores the end offsets of the topic as the new positions. Later reconciliations
// do not read the intents before these offsets. So advancePositions first waits until no such
// intent can get its fence any more.
//
// While it waits, it does not read newer offsets. With newer offsets, it would also have to wait
// for newer claims, and under load there are always newer claims.
func (r *Reconciler) advancePositions(ctx context.Context, state store.ServerState) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	next := r.nextPositions
	if next == nil || next.state.Server != state.Server || next.state.TopicID != state.TopicID {
		bounds, err := kafka.ReadBounds(ctx, r.client, kafka.DialIntents)
		if err != nil {
			return err
		}
		if state.TopicID != bounds.ID {
			slog.WarnContext(ctx, "topic replaced by a new topic with the same name", "topic", kafka.DialIntents.Name,
				"topic_id", bounds.ID, "previous_topic_id", state.TopicID)
		}
		after, err := r.store.ServerState(ctx)
		if err != nil {
			return err
		}
		state.Now = after.Now
		next = &positions{state: state, bounds: bounds}
		r.nextPositions = next
	}
	moved, err := r.store.AdvanceIntents(ctx, state.Server, next.bounds.ID, next.state.Now, next.bounds.End)
	if err == nil && moved {
		r.advancedAt, r.nextPositions = time.Now(), nil
	}
	return err
}

// reconcileServer reconciles a database server. It reads the end offsets after state, because the
// last intents of the earlier server must be before these offsets.
func (r *Reconciler) reconcileServer(ctx context.Context, state store.ServerState) error {
	bounds, err := kafka.ReadBounds(ctx, r.client, kafka.DialIntents)
	if err != nil {
		return err
	}
	from, err := r.startOffsets(ctx, state, bounds)
	if err != nil {
		return err
	}
	found := newIntentLog()
	// Only `dialer accept-intents` stores a topic id without a reconciled server.
	found.skipUndecodable = state.Reconciled == "" && state.TopicID != uuid.Nil
	if err := r.readIntents(ctx, from, bounds.End, found); err != nil {
		return err
	}
	open, err := r.openIntents(ctx, found)
	if err != nil {
		return err
	}
	if len(open) > 0 {
		slog.WarnContext(ctx, "dial intents without a fence in the database found",
			"requests", len(open), "server", state.Server)
		err := r.settleOpenIntents(ctx, state.Server, found, bounds.End)
		if errors.Is(err, store.ErrReconciled) {
			slog.InfoContext(ctx, "database reconciled by another process", "server", state.Server)
			return nil
		}
		if err != nil {
			return err
		}
	}
	if err := r.store.SetReconciled(ctx, state.Server, bounds.ID, bounds.End); err != nil {
		return err
	}
	slog.InfoContext(ctx, "database reconciled with dial intents", "server", state.Server,
		"intents_without_fence", len(open))
	return nil
}

// startOffsets returns the offsets from which intents must be read. If the topic has lost records
// after these offsets, it returns ErrConfirmationNeeded.
func (r *Reconciler) startOffsets(
	ctx context.Context, state store.ServerState, bounds kafka.Bounds,
) (kafka.Offsets, error) {
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

// intentLog contains the records that were read from the topic. The intents of each request are in
// the order of the topic.
type intentLog struct {
	intents   map[uuid.UUID][]store.Intent
	withdrawn map[uuid.UUID]bool
	// withdrawnOf contains the withdrawn calls of each request, even if their intents were not read.
	withdrawnOf map[uuid.UUID][]uuid.UUID
	// skipUndecodable is true if an operator has run `dialer accept-intents`. Records that cannot
	// be decoded are then skipped.
	skipUndecodable bool
	// onlyWithdrawals makes addRecord ignore intents and add only withdrawals.
	onlyWithdrawals bool
}

func newIntentLog() *intentLog {
	return &intentLog{
		intents: map[uuid.UUID][]store.Intent{}, withdrawn: map[uuid.UUID]bool{},
		withdrawnOf: map[uuid.UUID][]uuid.UUID{},
	}
}

func (l *intentLog) addRecord(i store.Intent, isWithdrawal bool) {
	if isWithdrawal {
		l.withdrawn[i.CallID] = true
		l.withdrawnOf[i.CallRequestID] = append(l.withdrawnOf[i.CallRequestID], i.CallID)
		return
	}
	if !l.onlyWithdrawals {
		l.intents[i.CallRequestID] = append(l.intents[i.CallRequestID], i)
	}
}

// validIntents returns the intents of a request for which a phone may have rung, newest first. Of
// each process, it returns only the newest intent that is not withdrawn.
//
// An older intent of the same process is not valid, because a process publishes its next intent for
// a request only after its previous dial has ended. An older intent of another process is valid,
// because a process can publish an intent after it has lost its claim.
func (l *intentLog) validIntents(request uuid.UUID) (valid []store.Intent) {
	seen := map[uuid.UUID]bool{}
	for _, i := range slices.Backward(l.intents[request]) {
		if !l.withdrawn[i.CallID] && !seen[i.InstanceID] {
			seen[i.InstanceID] = true
			valid = append(valid, i)
		}
	}
	return valid
}

// openIntents returns, for each request, the valid intents whose fences are missing, newest first.
func (r *Reconciler) openIntents(ctx context.Context, found *intentLog) (open [][]store.Intent, err error) {
	for requests := range slices.Chunk(slices.Collect(maps.Keys(found.intents)), batchSize) {
		var ids []uuid.UUID
		for _, request := range requests {
			for _, i := range found.validIntents(request) {
				ids = append(ids, i.CallID)
			}
		}
		unfenced, err := r.store.Unfenced(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, request := range requests {
			intents := slices.DeleteFunc(found.validIntents(request), func(i store.Intent) bool {
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

// settleOpenIntents waits for the other dialers, reads the withdrawals that they published in the
// meantime, and settles the intents that are still open. It ignores intents after topicEnd, because
// their fences can commit only on the present database server.
func (r *Reconciler) settleOpenIntents(
	ctx context.Context, server string, found *intentLog, topicEnd kafka.Offsets,
) error {
	if err := r.waitForDialers(ctx); err != nil {
		return err
	}
	later, err := kafka.ReadBounds(ctx, r.client, kafka.DialIntents)
	if err != nil {
		return err
	}
	found.onlyWithdrawals = true
	if err := r.readIntents(ctx, topicEnd, later.End, found); err != nil {
		return err
	}
	open, err := r.openIntents(ctx, found)
	if err != nil {
		return err
	}
	for requests := range slices.Chunk(open, batchSize) {
		var withdrawn []uuid.UUID
		for _, intents := range requests {
			withdrawn = append(withdrawn, found.withdrawnOf[intents[0].CallRequestID]...)
		}
		settled, err := r.store.SettleIntents(ctx, server, slices.Concat(requests...), withdrawn)
		if err != nil {
			return err
		}
		r.settled.WithLabelValues("restored").Add(float64(settled.Restored))
		r.settled.WithLabelValues("failed").Add(float64(settled.Failed))
		slog.WarnContext(ctx, "fences of dial intents restored", "restored", settled.Restored, "failed", settled.Failed)
	}
	return nil
}

// readIntents reads the records between the offsets into the log. If it cannot decode a record, it
// returns ErrConfirmationNeeded: the record can be the intent of a call that rang, and its request
// must not be dialed again.
func (r *Reconciler) readIntents(ctx context.Context, from, to kafka.Offsets, log *intentLog) error {
	return kafka.Scan(ctx, r.cfg, "dialer-reconciler", kafka.DialIntents, from, to, func(rec kafka.Record) error {
		i, withdrawn, err := decode(rec)
		switch {
		case err == nil:
			log.addRecord(i, withdrawn)
		case log.skipUndecodable:
			slog.WarnContext(ctx, "undecodable dial intent skipped", "partition", rec.Partition, "offset", rec.Offset,
				"key", rec.Key, "error", err)
		default:
			return fmt.Errorf("read offset %d of partition %d of %s, key %q: %w: %w",
				rec.Offset, rec.Partition, kafka.DialIntents.Name, rec.Key, err, ErrConfirmationNeeded)
		}
		return nil
	})
}

// Accept makes the next reconciliation read the topic from its oldest record and skip records that
// cannot be decoded. It replaces the stored positions. An operator runs it after
// ErrConfirmationNeeded.
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
