package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	// goalAudit limits the p50 of a read with an audit entry. It is a multiple of the p50 of a read
	// without one.
	goalAudit = 1.1
	// Each kind of read is measured in auditRounds rounds, which alternate.
	auditRounds  = 8
	auditClients = 8
	// auditTurns is the number of turns of the transcript.
	auditTurns = 14
)

// insertAuditedCall inserts a call with the columns that GET /v1/calls/{id} reads.
const insertAuditedCall = `
INSERT INTO calls.calls (id, workspace_id, direction, from_number, to_e164, agent_id, external_ref, status, transcript,
	queued_at, ended_at, talk_seconds, billable_seconds, version, analysed, charge_settled, closed)
VALUES (@id, @workspace, 'outbound', '+15005550006', '+14155550101', @agent, @reference, 'completed', @transcript,
	now(), now(), 60, 60, 5, true, true, true)`

const countReads = `
SELECT count(*) FROM gateway.audit_entries WHERE workspace_id = @workspace AND object_id = @call`

// measureAuditedReads compares GET /v1/calls/{id} of two calls by an API key. The first call has a
// transcript, so the gateway writes an audit entry before it responds. The second call has an
// external_ref of the same length instead, so both responses have the same size, but its reads are
// not audited.
func measureAuditedReads(ctx context.Context, b *bench) error {
	w, err := b.stack.NewWorkspace(ctx, "bench audit", "1")
	if err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, b.db)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	features := map[string]any{"features": map[string]any{"transcripts": true}}
	if err := w.Admin.Into(ctx, http.MethodPatch, "/admin/v1/workspaces/"+w.ID, features, http.StatusOK, nil); err != nil {
		return err
	}
	with, without, size, err := auditedAndPlainCall(ctx, db, w)
	if err != nil {
		return err
	}
	// The count is not 0, because auditedAndPlainCall has already read the call.
	reads, err := auditEntries(ctx, db, w, with)
	if err != nil {
		return err
	}
	var audited, plain loopResult
	for round := range auditRounds + 1 {
		withEntry, err := closedLoop(ctx, auditClients, b.each/auditRounds, readsCall(w, with))
		if err != nil {
			return err
		}
		withoutEntry, err := closedLoop(ctx, auditClients, b.each/auditRounds, readsCall(w, without))
		if err != nil {
			return err
		}
		reads += len(withEntry.took)
		if round > 0 { // the first round opens connections and does not count
			audited.addRound(withEntry, auditRounds)
			plain.addRound(withoutEntry, auditRounds)
		}
	}
	for call, want := range map[string]int{with: reads, without: 0} {
		got, err := auditEntries(ctx, db, w, call)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("audit entries of call %s = %d, want %d", call, got, want)
		}
	}
	ratio := float64(probe.Quantile(audited.took, 0.5)) / float64(probe.Quantile(plain.took, 0.5))
	fmt.Printf("  with an audit entry      %8.0f reads/s  %s\n", audited.perSecond, probe.Spread(audited.took))
	fmt.Printf("  without an audit entry   %8.0f reads/s  %s\n", plain.perSecond, probe.Spread(plain.took))
	fmt.Printf("    p50 as a multiple      %8.2f x    %s (%d clients, %d bytes a response)\n", ratio,
		probe.AtMost(ratio, goalAudit, "x"), auditClients, size)
	return nil
}

// auditedAndPlainCall inserts the two calls. It returns their ids, and the size of both responses
// in bytes.
func auditedAndPlainCall(
	ctx context.Context, db *pgx.Conn, w *kit.Workspace,
) (with, without string, size int, err error) {
	insert := func(reference, transcript string) (id string, size int, err error) {
		id = uuid.Must(uuid.NewV7()).String()
		_, err = db.Exec(ctx, insertAuditedCall, pgx.NamedArgs{
			"id": id, "workspace": w.ID, "agent": w.AgentID, "reference": reference, "transcript": transcript,
		})
		if err != nil {
			return "", 0, fmt.Errorf("insert a call: %w", err)
		}
		// The service `calls` receives the workspace's feature `transcripts` from Kafka. Until then, its
		// response contains no transcript.
		err = kit.Until(ctx, 10*time.Second, "the call has a transcript", func() (bool, error) {
			status, body, err := w.API.Do(ctx, http.MethodGet, "/v1/calls/"+id, nil)
			if err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable {
				err = fmt.Errorf("GET of a call: %d %s", status, body)
			}
			size = len(body)
			return bytes.Contains(body, []byte(`"turns"`)), err
		})
		return id, size, err
	}
	turn := `{"role":"agent","text":"I am calling about the offer from last week. Do you have a minute?","at":"%s"}`
	turns := make([]string, auditTurns)
	for i := range turns {
		turns[i] = fmt.Sprintf(turn, time.Now().Add(time.Duration(i)*time.Second).UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	const reference, noTurns = "r", `{"turns":[]}`
	with, size, err = insert(reference, `{"turns":[`+strings.Join(turns, ",")+`]}`)
	if err != nil {
		return "", "", 0, err
	}
	_, short, err := insert(reference, noTurns)
	if err != nil {
		return "", "", 0, err
	}
	without, padded, err := insert(strings.Repeat(reference, 1+size-short), noTurns)
	if err == nil && padded != size {
		err = fmt.Errorf("the responses have %d and %d bytes, want the same", size, padded)
	}
	return with, without, size, err
}

func readsCall(w *kit.Workspace, id string) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error {
		status, body, err := w.API.Do(ctx, http.MethodGet, "/v1/calls/"+id, nil)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("GET of a call: %d %s", status, body)
		}
		return err
	}
}

// addRound adds the result of one round. perSecond becomes the mean of all rounds.
func (l *loopResult) addRound(round loopResult, rounds float64) {
	l.took = append(l.took, round.took...)
	l.perSecond += round.perSecond / rounds
}

// auditEntries returns the number of audit entries of a call.
func auditEntries(ctx context.Context, db *pgx.Conn, w *kit.Workspace, call string) (n int, err error) {
	err = db.QueryRow(ctx, countReads, pgx.NamedArgs{"workspace": w.ID, "call": call}).Scan(&n)
	return n, err
}
