package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

func (r *fixture) bodyOf(event uuid.UUID) (body []byte) {
	r.t.Helper()
	const query = `SELECT body FROM events WHERE id = $1`
	if err := r.pool.QueryRow(r.t.Context(), query, event).Scan(&body); err != nil {
		r.t.Fatalf("read body of event %s: %v", event, err)
	}
	return body
}

func sqlState(err error) string {
	var fault *pgconn.PgError
	if errors.As(err, &fault) {
		return fault.Code
	}
	return ""
}

func (r *fixture) eraseCall(e store.Erasure) {
	r.t.Helper()
	err := pg.InTx(r.t.Context(), r.pool, func(tx pgx.Tx) error { return r.store.EraseCall(r.t.Context(), tx, e) })
	if err != nil {
		r.t.Fatalf("EraseCall: %v", err)
	}
}

// decodeJSON decodes a body. Numbers are not converted, so that they are compared as text.
func decodeJSON(t *testing.T, body []byte) (value any) {
	t.Helper()
	if len(body) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	return value
}

func TestEraseCall_RemovesPersonalMembersFromABodyThatIsStillNeeded(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	r.subscribe(ws, "call.completed")
	tests := []struct {
		name, body, want string
	}{
		{
			name: "full call",
			body: `{"type":"x","data":{"to":"+1","summary":{"a":1},"transcript":{"turns":[1]},"recording_url":"x","new":1}}`,
			want: `{"type":"x","data":{"to":"+1","summary":null,"new":1}}`,
		},
		{
			name: "amounts and text outside ASCII",
			body: `{"data":{"credits_charged":"0.10","n":1.50,"note":"Zoë \u00e9 \ud83d\ude00","transcript":{}}}`,
			want: `{"data":{"credits_charged":"0.10","n":1.50,"note":"Zoë \u00e9 \ud83d\ude00"}}`,
		},
		{
			name: "nothing to remove",
			body: `{"data":{"to":"+1","summary":null}}`,
			want: `{"data":{"to":"+1","summary":null}}`,
		},
		{name: "data is null", body: `{"data":null}`, want: ``},
		{name: "data is missing", body: `{"type":"x"}`, want: ``},
		{name: "not an object", body: `[1]`, want: ``},
		{name: "not JSON", body: `{`, want: ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := event(ws, uuid.New(), 1, "call.completed")
			ev.Body = []byte(tt.body)
			r.ingest(nil, ev)
			r.eraseCall(store.Erasure{ID: uuid.New(), WorkspaceID: ws, CallID: *ev.ObjectID, EventIDs: []uuid.UUID{ev.ID}})
			stored := r.bodyOf(ev.ID)
			if diff := cmp.Diff(decodeJSON(t, []byte(tt.want)), decodeJSON(t, stored)); diff != "" {
				t.Errorf("stored body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEraseCall_LeavesABodyWithoutPersonalDataUnchanged(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	r.subscribe(ws, "call.completed")
	ev := event(ws, uuid.New(), 1, "call.completed")
	ev.Body = []byte(`{"data":{"summary":null}}`)
	r.ingest(nil, ev)
	r.eraseCall(store.Erasure{ID: uuid.New(), WorkspaceID: ws, CallID: *ev.ObjectID, EventIDs: []uuid.UUID{ev.ID}})
	if got := r.bodyOf(ev.ID); string(got) != string(ev.Body) {
		t.Errorf("stored body = %s, want the bytes that were sent: %s", got, ev.Body)
	}
}

func TestEraseBody_ServiceRoleCannotWriteABody(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	r.subscribe(ws, "call.completed")
	const body = `{"data":{"outcome":"interested","summary":"Xy"}}`
	tests := []struct {
		name, sql string
		wantCode  string // the SQLSTATE of the error, or "" if there is no error
		want      string
	}{
		{
			name: "members that are removed", sql: `SELECT erase_body(@id, @created, true, '{outcome}', '{forged}')`,
			want: `{"data":{"summary":"Xy"}}`,
		},
		{
			name:     "UPDATE",
			sql:      `UPDATE events SET body = '{"forged":true}' WHERE id = @id AND created_at = @created`,
			wantCode: "42501", want: body,
		},
		{
			name: "helper function", sql: `SELECT strip_body('{}', '{}', '{}'), @id::uuid, @created::timestamptz`,
			wantCode: "42501", want: body,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := event(ws, uuid.New(), 1, "call.completed")
			ev.Body = []byte(body)
			r.ingest(nil, ev)
			_, err := r.pool.Exec(t.Context(), tt.sql, pgx.NamedArgs{"id": ev.ID, "created": ev.CreatedAt})
			if got := sqlState(err); got != tt.wantCode {
				t.Errorf("SQLSTATE = %q (%v), want %q", got, err, tt.wantCode)
			}
			if diff := cmp.Diff(decodeJSON(t, []byte(tt.want)), decodeJSON(t, r.bodyOf(ev.ID))); diff != "" {
				t.Errorf("stored body (-want +got):\n%s", diff)
			}
		})
	}
}
