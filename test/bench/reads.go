package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	manyCalls, fewCalls = 1_000_000, 1_000
	// goalReads limits the p99 with the large history. It is a multiple of the p99 with the small
	// history.
	goalReads = 1.5
	// apartCalls is the time between two calls of the large history.
	apartCalls = 20 * time.Second
	// The first `warmUp` responses of a client do not count. A p99 is calculated from at least
	// `enough` responses.
	warmUp, enough = 10, 400
)

// history is a workspace with calls, each with its call request. The rows of all histories are in
// the same tables, ordered by time. The workspace has one contact for every five calls.
type history struct {
	*kit.Workspace
	workspace uuid.UUID
	calls     int
	began     time.Time
	every     time.Duration
}

// objectID returns the id of the n-th object of a kind such as "call".
func (h *history) objectID(kind string, n int) uuid.UUID {
	id := uuid.NewSHA1(h.workspace, fmt.Appendf(nil, "%s %d", kind, n))
	ms := binary.BigEndian.AppendUint64(nil, uint64(h.at(n).UnixMilli()))
	copy(id[:6], ms[2:])
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return id
}

func (h *history) at(n int) time.Time { return h.began.Add(time.Duration(n) * h.every) }

func (h *history) contacts() int { return h.calls / 5 }

func (h *history) contact(n int) uuid.UUID { return h.objectID("contact", (n*7919)%h.contacts()) }

// agentID returns the id of an agent. Agents 0 to 4 have nearly all calls, agent 5 has the oldest
// ten calls, and agent 6 has no calls.
func (h *history) agentID(n int) uuid.UUID {
	if n < 10 {
		return h.objectID("agent", 5)
	}
	return h.objectID("agent", n%5)
}

// outcome returns the direction and the status of the n-th call. Three calls in the first tenth of
// the history were busy.
func (h *history) outcome(n int) (direction, status string) {
	direction = "outbound"
	if n%12 == 5 {
		direction = "inbound"
	}
	tenth := h.calls / 10
	switch {
	case n == tenth/4 || n == tenth/3 || n == tenth/2:
		return direction, "busy"
	case n%200 == 17:
		return direction, "canceled"
	case n%11 == 3:
		return direction, "failed"
	case n%4 == 1 && direction == "outbound":
		return direction, "no_answer"
	}
	return direction, "completed"
}

// reference returns the customer's reference of the n-th call. Half of the calls have a unique
// reference, a quarter have the name of a campaign, and a quarter have none.
func (h *history) reference(n int) *string {
	ref := fmt.Sprintf("order-%d", n)
	switch n % 4 {
	case 0:
		ref = fmt.Sprintf("campaign-%d", n*10/h.calls)
	case 1:
		return nil
	}
	return &ref
}

// readRequest is a read request to a history. path returns the path of the next request.
type readRequest struct {
	name string
	path func(h *history) string
}

func fixed(path string) func(*history) string { return func(*history) string { return path } }

func filtered(path, parameter string, of func(*history) string) func(*history) string {
	sign := "?"
	if strings.Contains(path, sign) {
		sign = "&"
	}
	return func(h *history) string { return path + sign + parameter + "=" + url.QueryEscape(of(h)) }
}

func (h *history) someCall() string { return h.objectID("call", rand.IntN(h.calls)).String() }

func questions() []readRequest {
	const calls, requests, contacts = "/v1/calls", "/v1/call-requests", "/v1/contacts"
	return []readRequest{
		{"call by id", func(h *history) string { return calls + "/" + h.someCall() }},
		{"request by id", func(h *history) string {
			return requests + "/" + h.objectID("request",
				rand.IntN(h.calls)).String()
		}},
		{"calls", fixed(calls)},
		{"calls, a page of 100", fixed(calls + "?limit=100")},
		{"calls, a page deep down", filtered(calls, "starting_after", (*history).someCall)},
		{"calls, status=completed", fixed(calls + "?status=completed")},
		{"calls, status=busy (three)", fixed(calls + "?status=busy")},
		{"calls, status=ringing (none)", fixed(calls + "?status=ringing")},
		{"calls, direction=inbound", fixed(calls + "?direction=inbound")},
		{"calls, inbound and no_answer (none)", fixed(calls + "?direction=inbound&status=no_answer")},
		{"calls, agent of a fifth", filtered(calls, "agent_id",
			func(h *history) string { return h.objectID("agent", 2).String() })},
		{"calls, agent of ten", filtered(calls, "agent_id",
			func(h *history) string { return h.objectID("agent", 5).String() })},
		{"calls, agent of a fifth, busy", filtered(calls+"?status=busy", "agent_id",
			func(h *history) string { return h.objectID("agent", 2).String() })},
		{"calls, contact", filtered(calls, "contact_id", func(h *history) string { return h.contact(rand.IntN(h.calls)).String() })},
		{"calls, reference used once", filtered(calls, "external_ref", func(h *history) string { return fmt.Sprintf("order-%d", rand.IntN(h.calls/4)*4+2) })},
		{"calls, campaign", filtered(calls, "external_ref", func(*history) string { return "campaign-3" })},
		{"calls, created in a stretch", func(h *history) string {
			n := rand.IntN(h.calls)
			return calls + "?created_after=" + h.at(n-50).Format(time.RFC3339) + "&created_before=" + h.at(n).Format(time.RFC3339)
		}},
		{"requests", fixed(requests)},
		{"requests, a page deep down", filtered(requests, "starting_after",
			func(h *history) string { return h.objectID("request", rand.IntN(h.calls)).String() })},
		{"requests, status=failed", fixed(requests + "?status=failed")},
		{"requests, status=blocked (none)", fixed(requests + "?status=blocked")},
		{"requests, reference used once", filtered(requests, "external_ref", func(h *history) string { return fmt.Sprintf("order-%d", rand.IntN(h.calls/4)*4+2) })},
		{"contacts", fixed(contacts)},
		{"contacts, dnd (three)", fixed(contacts + "?dnd_status=dnd")},
		{"contacts, number", filtered(contacts, "phone", func(h *history) string { return phoneNumber(int64(rand.IntN(h.contacts()))) })},
		{"contacts, a common name", fixed(contacts + "?q=ann")},
		{"contacts, a name of one", fixed(contacts + "?q=zyxw")},
	}
}

// measureReads sends the same read requests alternately to a workspace with a million calls and to
// a workspace with a thousand calls. It measures with one client and with eight clients.
func measureReads(ctx context.Context, b *bench) error {
	largeHistory, smallHistory, err := b.histories(ctx)
	if err != nil {
		return err
	}
	for _, clients := range []int{1, 8} {
		fmt.Printf("  %d client(s)                             %8s calls      %8s calls      p99 ratio (goal %.1f)\n", clients, "1000", "1000000", goalReads)
		var missed []string
		for _, q := range questions() {
			ofSmall, ofLarge, err := b.compare(ctx, clients, q, smallHistory, largeHistory)
			if err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
			ratio := float64(probe.Quantile(ofLarge, 0.99)) / float64(probe.Quantile(ofSmall, 0.99))
			verdict := "met"
			if ratio > goalReads {
				verdict, missed = "MISSED", append(missed, q.name)
			}
			fmt.Printf("    %-38s %6.2f / %6.2f ms  %6.2f / %6.2f ms  %5.2f %s (%d each)\n", q.name,
				probe.MS(probe.Quantile(ofSmall, 0.5)), probe.MS(probe.Quantile(ofSmall, 0.99)),
				probe.MS(probe.Quantile(ofLarge, 0.5)), probe.MS(probe.Quantile(ofLarge, 0.99)),
				ratio, verdict, min(len(ofSmall), len(ofLarge)))
		}
		fmt.Printf("    p50 / p99; %d of %d questions met the goal\n", len(questions())-len(missed), len(questions()))
	}
	return nil
}

// compare sends the request to the small history and to the large history alternately, so that both
// have the same background load.
func (b *bench) compare(ctx context.Context, clients int, q readRequest, smallHistory, largeHistory *history) (
	ofSmall, ofLarge []time.Duration, err error,
) {
	type lane struct{ small, large []time.Duration }
	lanes := make([]lane, clients)
	ask := func(ctx context.Context, client int) error {
		mine := &lanes[client]
		for _, side := range []struct {
			of   *history
			took *[]time.Duration
		}{{smallHistory, &mine.small}, {largeHistory, &mine.large}} {
			path := q.path(side.of)
			began := time.Now()
			status, answer, err := side.of.API.Do(ctx, http.MethodGet, path, nil)
			if err != nil {
				return err
			}
			if status != http.StatusOK {
				return fmt.Errorf("GET %s: %d %s", path, status, answer)
			}
			*side.took = append(*side.took, time.Since(began))
		}
		return nil
	}
	for asked, began := 0, time.Now(); err == nil && (asked < enough || time.Since(began) < b.each/4); {
		var got loopResult
		got, err = closedLoop(ctx, clients, b.each/8, ask)
		asked += len(got.took)
	}
	for _, l := range lanes {
		cold := min(warmUp, len(l.small)/2)
		ofSmall, ofLarge = append(ofSmall, l.small[cold:]...), append(ofLarge, l.large[cold:]...)
	}
	return ofSmall, ofLarge, err
}

// histories returns the two histories. The first measurement that needs them creates them.
func (b *bench) histories(ctx context.Context) (largeHistory, smallHistory *history, err error) {
	if b.largeHistory != nil {
		return b.largeHistory, b.smallHistory, nil
	}
	db, err := pgx.Connect(ctx, b.db)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = db.Close(context.Background()) }()
	began := time.Now()
	var made [2]*history
	for i, calls := range []int{manyCalls, fewCalls} {
		w, err := b.stack.NewWorkspace(ctx, fmt.Sprintf("bench reads %d", calls), "1")
		if err != nil {
			return nil, nil, err
		}
		made[i] = &history{
			Workspace: w, workspace: uuid.MustParse(w.ID), calls: calls,
			began: began.Add(-manyCalls * apartCalls), every: apartCalls * time.Duration(manyCalls/calls),
		}
	}
	largeHistory, smallHistory = made[0], made[1]
	for _, t := range tables() {
		if err := fillTable(ctx, db, t, mixed(largeHistory, smallHistory, t)); err != nil {
			return nil, nil, fmt.Errorf("fill %s: %w", t.name, err)
		}
	}
	fmt.Printf("  %d calls, their requests and contacts in one workspace and %d in another: written in %s\n", manyCalls, fewCalls, time.Since(began).Round(time.Second))
	b.largeHistory, b.smallHistory = largeHistory, smallHistory
	return largeHistory, smallHistory, nil
}

// indexesOf selects the indexes that are dropped during the inserts, because it is faster to build
// them again afterwards.
const indexesOf = `
SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = $1::regclass AND NOT indisunique`

// fillTable inserts the rows of one table in one transaction. Afterwards it builds the table's
// indexes and runs VACUUM and ANALYZE.
func fillTable(ctx context.Context, db *pgx.Conn, t table, rows pgx.CopyFromSource) error {
	name := pgx.Identifier{t.schema, t.name}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, indexesOf, name.Sanitize())
		if err != nil {
			return err
		}
		type index struct{ Name, Definition string }
		indexes, err := pgx.CollectRows(found, pgx.RowToStructByPos[index])
		if err != nil {
			return err
		}
		statements := []string{"SET LOCAL maintenance_work_mem = '512MB'", "SET LOCAL search_path = " + pgx.Identifier{t.schema}.Sanitize()}
		for _, i := range indexes {
			if _, err := tx.Exec(ctx, "DROP INDEX "+i.Name); err != nil {
				return err
			}
			statements = append(statements, i.Definition)
		}
		if _, err := tx.CopyFrom(ctx, name, t.columns, rows); err != nil {
			return err
		}
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, "VACUUM (ANALYZE) "+name.Sanitize())
	return err
}

// table is one of the tables that the lists read. row returns the table's row for the n-th call of
// a history.
type table struct {
	schema, name string
	columns      []string
	callsPerRow  int
	row          func(h *history, n int) []any
}

func tables() []table {
	return []table{
		{"calls", "calls", []string{
			"id", "workspace_id", "call_request_id", "direction", "from_number", "to_e164", "agent_id", "contact_id", "external_ref", "status", "outcome",
			"summary", "queued_at", "ended_at", "talk_seconds", "billable_seconds", "version", "analysed", "charge_settled", "closed", "traceparent",
		}, 1, func(h *history, n int) []any {
			direction, status := h.outcome(n)
			var outcome, summary *string
			talked := 0
			if status == "completed" {
				interested := "interested"
				what := `{"outcome":"interested","confidence":0.9,"next_action":"Call back with the offer.",` +
					`"key_interests":["price","delivery"]}`
				outcome, summary, talked = &interested, &what, 30+n%200
			}
			return []any{
				h.objectID("call", n), h.workspace, h.objectID("request", n), direction, "+15005550006",
				phoneNumber(int64(n % h.contacts())), h.agentID(n), h.contact(n),
				h.reference(n), status, outcome, summary, h.at(n), h.at(n).Add(time.Minute), talked, talked, 5, true, true, true,
				"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			}
		}},
		{"calls", "call_requests", []string{
			"id", "workspace_id", "status", "call_id", "to_e164", "agent_id", "contact_id", "variables", "external_ref", "scheduled_for", "schedule_if_outside_hours",
			"max_call_seconds", "queued_at", "error_code", "completed_at", "charge_settled", "traceparent",
		}, 1, func(h *history, n int) []any {
			status := "completed"
			var code *string
			if _, fate := h.outcome(n); fate == "failed" || fate == "canceled" {
				why := "provider_unavailable"
				status, code = "failed", &why
			}
			return []any{
				h.objectID("request", n), h.workspace, status, h.objectID("call", n),
				phoneNumber(int64(n % h.contacts())), h.agentID(n), h.contact(n), `{"first_name":"Ann"}`,
				h.reference(n), h.at(n), false, 600, h.at(n), code, h.at(n).Add(time.Minute), true, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			}
		}},
		{"contacts_compliance", "contacts", []string{"id", "workspace_id", "phone_e164", "name", "name_folded", "dnd_status", "updated_at"}, 5, func(h *history, n int) []any {
			var name, folded *string
			dnd := "unknown"
			if first := []string{"Ann", "Bob", "Carla", "Dieter", "Eve", "Fritz", "Gail", "Hans"}[n%8]; n%4 != 1 {
				full, low := fmt.Sprintf("%s %d", first, n), fmt.Sprintf("%s %d", string(first[0]|0x20)+first[1:], n)
				name, folded = &full, &low
			}
			if n == 1 {
				full, low := "Zyxw", "zyxw"
				name, folded = &full, &low
			}
			if n < 3 {
				dnd = "dnd"
			}
			return []any{h.objectID("contact", n), h.workspace, phoneNumber(int64(n)), name, folded, dnd, h.at(n)}
		}},
	}
}

func mixed(large, small *history, t table) pgx.CopyFromSource {
	n, isSmall := -1, false
	callsRatio := large.calls / small.calls
	return pgx.CopyFromFunc(func() ([]any, error) {
		if !isSmall && n >= 0 && n%callsRatio == 0 && n*small.calls/large.calls < small.calls/t.callsPerRow {
			isSmall = true
			return t.row(small, n*small.calls/large.calls), nil
		}
		isSmall = false
		if n++; n >= large.calls/t.callsPerRow {
			return nil, nil
		}
		return t.row(large, n), nil
	})
}
