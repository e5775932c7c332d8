package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

type erased struct {
	w  *kit.Workspace
	to string
	// secrets are texts that belong only to this person. spoken are texts of the simulated
	// conversations, which are the same for other persons.
	secrets, spoken []string
	ids             []string
}

func secretsOf(name string) []string {
	return []string{name + " Quillfeather", name + "-order-7731", name + "-meta-4420"}
}

func know(t *testing.T, w *kit.Workspace, to, name string) *erased {
	t.Helper()
	spoken := []string{
		"Ana Reyes", "Jonas Weber", "Priya Nair", "Marek Novak", "interested in", "call me back", "customer_name",
	}
	p := &erased{w: w, to: to, secrets: secretsOf(name), spoken: spoken}
	body := map[string]any{"phone_e164": to, "name": p.secrets[0], "metadata": map[string]any{"note": p.secrets[2]}}
	if err := w.API.Into(t.Context(), "POST", "/v1/contacts", body, http.StatusCreated, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *erased) place(t *testing.T, more map[string]any) string {
	t.Helper()
	body := map[string]any{"to": p.to, "variables": map[string]any{"order": p.secrets[1]}}
	for name, value := range more {
		body[name] = value
	}
	req, err := p.w.Place(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	p.ids = append(p.ids, req.ID)
	return req.ID
}

func (p *erased) reach(t *testing.T, request, status string) (call kit.Call) {
	t.Helper()
	until(t, "a call to "+p.to+" is "+status, func() bool {
		req, err := p.w.Request(t.Context(), request)
		if err != nil || req.CallID == nil {
			return false
		}
		call, err = p.w.Call(t.Context(), *req.CallID)
		return err == nil && call.Status == status && (status != "completed" || call.Outcome != nil && call.CreditsCharged != "")
	})
	p.ids = append(p.ids, call.CallID)
	return call
}

// erase repeats the request until it is accepted. The result is the id of the entry in the register
// of erasures.
func (p *erased) erase(t *testing.T) (id string) {
	t.Helper()
	var answer struct {
		Erasure struct {
			ID string `json:"id"`
		} `json:"erasure"`
	}
	until(t, "the erasure of "+p.to+" is answered", func() bool {
		return p.w.Admin.Into(t.Context(), "DELETE", "/admin/v1/workspaces/"+p.w.ID+"/contacts/"+url.PathEscape(p.to), nil, http.StatusOK, &answer) == nil
	})
	return answer.Erasure.ID
}

type entry struct {
	DoneAt   *time.Time `json:"done_at"`
	Services []struct {
		Service string `json:"service"`
		Steps   int    `json:"steps"`
		Open    int    `json:"open"`
	} `json:"services"`
}

func carriedOut(t *testing.T, w *kit.Workspace, id string) (e entry) {
	t.Helper()
	until(t, "erasure "+id+" is carried out", func() bool {
		e = entry{}
		err := w.Admin.Into(t.Context(), "GET", "/admin/v1/workspaces/"+w.ID+"/erasures/"+id, nil, http.StatusOK, &e)
		return err == nil && e.DoneAt != nil
	})
	return e
}

type row struct{ table, text string }

// everyRow reads every table of every schema as the superuser.
func everyRow(t *testing.T, db *kit.Postgres) (rows []row) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	found, err := conn.Query(t.Context(), `SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("pgx.CollectRows: %v", err)
	}
	if len(tables) < 40 {
		t.Fatalf("length of tables = %d, want at least 40", len(tables))
	}
	if _, err := conn.Exec(t.Context(), "SET bytea_output = 'escape'"); err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		found, err := conn.Query(t.Context(), "SELECT t::text FROM "+table+" t")
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			rows = append(rows, row{table, text})
		}
	}
	return rows
}

func contains(text string, any []string) string {
	at := slices.IndexFunc(any, func(one string) bool { return strings.Contains(text, one) })
	if at < 0 {
		return ""
	}
	return any[at]
}

// remainingRows returns the rows that still contain data of the person. The person's own texts
// count in any row. Spoken texts count in rows with the person's number or with a call id.
func (p *erased) remainingRows(rows []row) (left []string) {
	for _, r := range rows {
		if found := contains(r.text, p.secrets); found != "" {
			left = append(left, fmt.Sprintf("%s says %q", r.table, found))
		}
		if found := contains(r.text, p.spoken); found != "" && contains(r.text, append(p.ids, p.to)) != "" {
			left = append(left, fmt.Sprintf("%s says %q in a row of theirs", r.table, found))
		}
	}
	return left
}

// TestErasure_DeletesAllPersonalData erases a person's data during a call, and then reads every row
// of every table. Only the existence of the calls, the opt-out and the consent records may be left.
// The data of another person must be unchanged.
func TestErasure_DeletesAllPersonalData(t *testing.T) {
	hooks := receiver(t)
	db := database(t)
	s := start(t, binaries(t), "POSTGRES_URL="+db.URL, "SSL_CERT_FILE="+hooks.CAFile, "SIMULATOR_TIME_SCALE=3")
	w := tenant(t, s, hooks, "1000")
	line := number(7_100_050)
	addInboundNumber(t, w, line)
	p, other := know(t, w, number(7_100_097), "Zebulon"), know(t, w, number(7_100_197), "Ottoline")

	if status, _, err := kit.NewClient(s.Demo.SimURL, "").Do(t.Context(), "POST", "/inbound",
		map[string]string{"from": p.to, "to": line}); err != nil {
		t.Fatalf("Do: %v", err)
	} else if status/100 != 2 {
		t.Fatalf("Do: status/100 = %v, want 2", status/100)
	}
	first, theirs := p.place(t, nil), other.place(t, nil)
	for who, request := range map[*erased]string{p: first, other: theirs} {
		if call := who.reach(t, request, "completed"); call.Summary["customer_name"] == nil {
			t.Fatalf("a call without a summary: %+v", call)
		}
	}
	p.calledUs(t)
	tomorrow := p.place(t, map[string]any{"scheduled_for": time.Now().Add(24 * time.Hour)})
	before := everyRow(t, db)
	if n := len(p.remainingRows(before)); n < 8 {
		t.Fatalf("only %d rows speak of the person before: %v", n, p.remainingRows(before))
	}
	theirsBefore := other.remainingRows(before)
	live := p.place(t, nil)
	p.reach(t, live, "in_progress")
	if err := w.API.Into(t.Context(), "POST", "/v1/opt-outs", map[string]any{"phone_e164": p.to}, http.StatusOK, nil); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	id := p.erase(t)
	done := carriedOut(t, w, id)
	t.Logf("carried out after %s: %+v", time.Since(began).Round(time.Millisecond), done.Services)
	if call := p.reach(t, live, "completed"); call.Summary != nil {
		t.Errorf("a call that ended after the erasure has a summary: %v", call.Summary)
	}
	req, err := w.Request(t.Context(), tomorrow)
	if err != nil {
		t.Fatal(err)
	}
	sharedstack.Equal(t, "req.Status", req.Status, "blocked")
	sharedstack.Equal(t, "stage.Value(req.ErrorCode)", sharedstack.Value(req.ErrorCode), "consent_withdrawn")
	until(t, "the last event is delivered", func() bool {
		return slices.ContainsFunc(hooks.Deliveries(w.ID), func(d kit.Delivery) bool {
			return d.Type == "call.completed" && d.CallID == p.ids[len(p.ids)-1] && d.Signed && strings.Contains(string(d.Body), `"summary":null`)
		})
	})
	var rows []row
	until(t, "every outbox and the delivery queue are empty", func() bool {
		rows = everyRow(t, db)
		return !slices.ContainsFunc(rows, func(r row) bool {
			return strings.HasSuffix(r.table, ".outbox") || strings.HasSuffix(r.table, "delivery_queue")
		})
	})
	for _, leftover := range p.remainingRows(rows) {
		t.Error(leftover)
	}
	if now := other.remainingRows(rows); len(now) < len(theirsBefore) {
		t.Errorf("left: length of now = %d, want at least %d", len(now), len(theirsBefore))
	} else if len(now) == 0 {
		t.Error("left: length of now = 0, want more")
	}
	p.kept(t, rows)
	if output, err := s.Command(t.Context(), "service", "contacts-compliance", "verify"); err != nil {
		t.Errorf("the consent ledger: Command: %v", err)
	} else if !strings.Contains(output, " 0 broken") {
		t.Errorf(`the consent ledger: output = %q, want it to contain " 0 broken"`, output)
	}
}

func (p *erased) calledUs(t *testing.T) {
	t.Helper()
	until(t, "the call from "+p.to+" is over", func() bool {
		var list kit.Page[struct {
			ID, From string
			Outcome  *string
		}]
		err := p.w.API.Into(t.Context(), "GET", "/v1/calls?direction=inbound&status=completed", nil, http.StatusOK, &list)
		if err != nil || len(list.Data) != 1 {
			return false
		}
		if list.Data[0].From != p.to || list.Data[0].Outcome == nil {
			return false
		}
		p.ids = append(p.ids, list.Data[0].ID)
		return true
	})
}

func (p *erased) kept(t *testing.T, rows []row) {
	t.Helper()
	found := map[string]int{}
	for _, r := range rows {
		table := strings.TrimRight(r.table, "0123456789_")
		if strings.Contains(r.text, p.to) {
			found[table]++
		}
		if strings.HasSuffix(table, ".contacts") && strings.Contains(r.text, p.to) && (!strings.Contains(r.text, "withdrawn") || !strings.Contains(r.text, "dnd")) {
			t.Errorf("the contact is %s, want it opted out and its consent withdrawn", r.text)
		}
		if strings.HasSuffix(table, ".erasures") && strings.HasPrefix(table, "contacts_compliance") && strings.Contains(r.text, p.to) {
			t.Errorf("the register names the person: %s", r.text)
		}
	}
	for table, want := range map[string]int{"contacts_compliance.consent_records": 2, "contacts_compliance.contacts": 1, "calls.call_requests": 3, "calls.calls": 3} {
		if found[table] != want {
			t.Errorf("%s has %d rows of the person, want %d (all: %v)", table, found[table], want, found)
		}
	}
}

// TestErasure_CompletesDuringKills erases the data of many persons during their calls. Meanwhile it
// kills every involved process, including the broker.
func TestErasure_CompletesDuringKills(t *testing.T) {
	hooks, rng := receiver(t), sharedstack.Seeded(t, 1)
	db := database(t)
	s := start(t, binaries(t), "POSTGRES_URL="+db.URL, "SSL_CERT_FILE="+hooks.CAFile, "SIMULATOR_TIME_SCALE=0.5", "WEBHOOK_LEASE=3s", "WEBHOOK_TIMEOUT=2s", "CLAIM_LEASE=3s")
	w := tenant(t, s, hooks, "1000")
	var crowd []*erased
	for n := range 24 {
		p := know(t, w, number(7_200_000+100*n), fmt.Sprintf("Crowd%02d", n))
		p.place(t, nil)
		crowd = append(crowd, p)
	}
	stays := crowd[0]
	victims := []string{"calls", "dialer", "webhook-dispatcher", "contacts-compliance", "broker"}
	ctx, stop := context.WithCancel(t.Context())
	killed := make(chan int)
	go func() {
		n := 0
		defer func() { killed <- n }()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(200+rng.IntN(400)) * time.Millisecond):
				if s.KillOne(victims[rng.IntN(len(victims))], 0) {
					n++
				}
			}
		}
	}()
	var ids []string
	for _, p := range crowd[1:] {
		ids = append(ids, p.erase(t))
	}
	pause(t, 3*time.Second)
	stop()
	t.Logf("%d kills", <-killed)
	for _, id := range ids {
		carriedOut(t, w, id)
	}
	until(t, "every request has ended", func() bool {
		requests, err := w.Requests(t.Context())
		return err == nil && !slices.ContainsFunc(requests, func(r kit.Request) bool { return !r.Final() })
	})
	var rows []row
	until(t, "every outbox and the delivery queue are empty", func() bool {
		rows = everyRow(t, db)
		return !slices.ContainsFunc(rows, func(r row) bool {
			return strings.HasSuffix(r.table, ".outbox") || strings.HasSuffix(r.table, "delivery_queue")
		})
	})
	requests, err := w.Requests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range requests {
		for _, p := range crowd {
			if p.to == req.To && req.CallID != nil {
				p.ids = append(p.ids, *req.CallID)
			}
		}
	}
	for _, p := range crowd[1:] {
		for _, leftover := range p.remainingRows(rows) {
			t.Errorf("%s: %s", p.to, leftover)
		}
	}
	if len(stays.remainingRows(rows)) == 0 {
		t.Error("the data of a person who was not erased is missing")
	}
	if slices.ContainsFunc(rows, func(r row) bool { return strings.HasSuffix(r.table, ".dead_letters") }) {
		t.Error("a table dead_letters has rows, want none: a service could not handle a record")
	}
}
