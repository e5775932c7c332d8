// Measurements of the compliance checks: with millions of contacts, as a share of POST /v1/calls,
// and the import of a DND list compared with a COPY. README.md describes each figure.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

// GateSetup are the parameters of the measurements.
type GateSetup struct {
	Stack *kit.Stack
	// Home is the folder of the stack. DB is the superuser's URL of the stack's database.
	Home, DB string
	// Each is the duration of one measurement.
	Each time.Duration
	// Contacts is the number of contacts of the workspace. Listed is the number of entries of the
	// imported DND list.
	Contacts, Listed int
}

const answerer = "contacts-compliance"

type gateBench struct {
	GateSetup
	*kit.Workspace
	db       *pgx.Conn
	preCheck compliancev1.PreCheckServiceClient
	gate     compliancev1.DialCheckServiceClient
}

// Measure runs all measurements.
func Measure(ctx context.Context, setup GateSetup) error {
	h := &gateBench{GateSetup: setup}
	var err error
	if h.Workspace, err = setup.Stack.NewWorkspace(ctx, "bench judging", "10000000"); err != nil {
		return err
	}
	if h.db, err = pgx.Connect(ctx, setup.DB); err != nil {
		return err
	}
	defer func() { _ = h.db.Close(context.WithoutCancel(ctx)) }()
	if err := h.questioners(); err != nil {
		return err
	}
	began := time.Now()
	if err := h.fill(ctx); err != nil {
		return err
	}
	fmt.Printf("  %d contacts written in %s\n", h.Contacts, time.Since(began).Round(time.Second))
	for _, clients := range []int{1, 8, 32} {
		if err := h.measureLevel(ctx, clients); err != nil {
			return err
		}
	}
	if err := h.measureCountryRules(ctx, 8); err != nil {
		return err
	}
	return h.importList(ctx)
}

// measureCountryRules measures the checks of a workspace with the country rules of the US. The
// rules check consent, time zones, hours and holidays of states, and in Florida the number of
// earlier calls. Allowed and denied checks both count.
func (h *gateBench) measureCountryRules(ctx context.Context, clients int) error {
	policy := map[string]any{"calling_policy": map[string]any{"packs": []string{"us"}}}
	if err := h.Admin.Into(ctx, http.MethodPatch, "/admin/v1/workspaces/"+h.ID, policy, http.StatusOK, nil); err != nil {
		return err
	}
	fmt.Printf("  %d client(s), %d contacts, held to pack us\n", clients, h.Contacts)
	_, err := h.measure(ctx, clients, []kind{{"pre-check", h.askPreChecked}, {"gate", h.askGated}})
	return err
}

func (h *gateBench) askPreChecked(ctx context.Context) error {
	_, err := h.preCheck.PreCheck(ctx, connect.NewRequest(&compliancev1.PreCheckRequest{
		CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: h.ID, ToE164: h.randomConsenting(),
		ScheduleIfOutsideHours: true,
	}))
	return err
}

func (h *gateBench) askGated(ctx context.Context) error {
	_, err := h.gate.Check(ctx, connect.NewRequest(&compliancev1.CheckRequest{
		CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: h.ID, ToE164: h.randomConsenting(),
		ScheduleIfOutsideHours: true,
	}))
	return err
}

func (h *gateBench) questioners() error {
	data, err := os.ReadFile(filepath.Join(h.Home, "state.json"))
	if err != nil {
		return err
	}
	var known struct {
		Ports       map[string]int    `json:"ports"`
		SigningKeys map[string]string `json:"signing_keys"`
	}
	if err := json.Unmarshal(data, &known); err != nil {
		return err
	}
	base := fmt.Sprintf("http://127.0.0.1:%d", known.Ports[answerer])
	as := func(name string) (connect.ClientOption, error) {
		keys, err := serviceauth.New(name, serviceauth.Config{SigningKey: known.SigningKeys[name]})
		if err != nil {
			return nil, err
		}
		return connect.WithInterceptors(keys.ClientInterceptor(answerer)), nil
	}
	calls, err := as("calls")
	dialer, err2 := as("dialer")
	h.preCheck = compliancev1.NewPreCheckServiceClient(serviceauth.Client(), base, calls)
	h.gate = compliancev1.NewDialCheckServiceClient(serviceauth.Client(), base, dialer)
	return errors.Join(err, err2)
}

// contactNumber returns the phone number of the n-th contact. The contacts' states are California,
// Florida, New York, Texas and Illinois in turn.
func contactNumber(n int) string {
	return fmt.Sprintf("+1%s%07d", [...]string{"415", "305", "212", "214", "312"}[n%5], n/5)
}

const fillSome = 250_000

const fillContacts = `
INSERT INTO contacts_compliance.contacts (id, workspace_id, phone_e164, dnd_status, consent_status, updated_at)
SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - 10000000 + n), 12, '0') || '7' || lpad(to_hex(n & 4095), 3, '0') || '8' || substr(md5(n::text), 1, 15))::uuid,
       $1, '+1' || (ARRAY['415', '305', '212', '214', '312'])[n % 5 + 1] || lpad((n / 5)::text, 7, '0'), CASE WHEN n % 50 = 0 THEN 'dnd' ELSE 'unknown' END, CASE WHEN n % 3 = 0 THEN 'consented' ELSE 'unknown' END, now()
FROM generate_series($2::int, $3::int) AS n`

func (h *gateBench) fill(ctx context.Context) error {
	for from := 0; from < h.Contacts; from += fillSome {
		if _, err := h.db.Exec(ctx, fillContacts, h.ID, from, min(from+fillSome, h.Contacts)-1); err != nil {
			return fmt.Errorf("write contacts: %w", err)
		}
	}
	_, err := h.db.Exec(ctx, `VACUUM ANALYZE contacts_compliance.contacts`)
	return err
}

// randomContact returns the number of a random contact that has not opted out.
func (h *gateBench) randomContact() string {
	return contactNumber(rand.IntN(h.Contacts/50)*50 + 1 + rand.IntN(49))
}

// randomConsenting returns the number of a random contact with consent and without an opt-out.
func (h *gateBench) randomConsenting() string {
	for {
		if n := 3 * rand.IntN(h.Contacts/3); n%50 != 0 {
			return contactNumber(n)
		}
	}
}

type kind struct {
	name string
	ask  func(context.Context) error
}

// measureLevel measures with the given number of clients. Each client sends the three kinds of
// requests alternately, so that all kinds are measured under the same background load.
func (h *gateBench) measureLevel(ctx context.Context, clients int) error {
	fmt.Printf("  %d client(s), %d contacts\n", clients, h.Contacts)
	halves, err := h.measure(ctx, clients, []kind{{"pre-check", h.askPreCheck}, {"gate", h.askGate}, {"POST /v1/calls", h.post}})
	if err != nil {
		return err
	}
	post := probe.MS(halves[2])
	fmt.Printf("    of a POST: pre-check %.0f %%; a gate as long again is %.0f %%\n", 100*probe.MS(halves[0])/post, 100*probe.MS(halves[1])/post)
	return nil
}

func (h *gateBench) measure(ctx context.Context, clients int, kinds []kind) (halves []time.Duration, err error) {
	took := make([][][]time.Duration, clients)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(h.Each)
	var all sync.WaitGroup
	faults := make([]error, clients)
	for client := range clients {
		took[client] = make([][]time.Duration, len(kinds))
		all.Go(func() {
			for round := 0; time.Now().Before(end); round++ {
				for kind := range kinds {
					began := time.Now()
					if err := kinds[kind].ask(ctx); err != nil {
						faults[client] = fmt.Errorf("%s: %w", kinds[kind].name, err)
						cancel()
						return
					}
					// the first rounds do not count, because they open connections and prepare
					// statements
					if round > 5 {
						took[client][kind] = append(took[client][kind], time.Since(began))
					}
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	for kind := range kinds {
		var of []time.Duration
		for client := range clients {
			of = append(of, took[client][kind]...)
		}
		if len(of) == 0 {
			return nil, fmt.Errorf("%s was never answered twice", kinds[kind].name)
		}
		halves = append(halves, probe.Quantile(of, 0.5))
		fmt.Printf("    %-15s %s (%d)\n", kinds[kind].name, probe.Spread(of), len(of))
	}
	return halves, nil
}

func (h *gateBench) askPreCheck(ctx context.Context) error {
	response, err := h.preCheck.PreCheck(ctx, connect.NewRequest(&compliancev1.PreCheckRequest{
		CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: h.ID, ToE164: h.randomContact(),
	}))
	if err == nil && response.Msg.GetAllowed() == nil {
		err = fmt.Errorf("refused: %v", response.Msg.GetRefused())
	}
	return err
}

func (h *gateBench) askGate(ctx context.Context) error {
	response, err := h.gate.Check(ctx, connect.NewRequest(&compliancev1.CheckRequest{
		CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: h.ID, ToE164: h.randomContact(),
	}))
	if err == nil && response.Msg.GetOpen() == nil {
		err = fmt.Errorf("not open: %v", response.Msg)
	}
	return err
}

func (h *gateBench) post(ctx context.Context) error {
	status, answer, err := h.API.Do(ctx, http.MethodPost, "/v1/calls", map[string]any{
		"agent_id": h.AgentID, "to": h.randomContact(),
		"scheduled_for": time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339),
	})
	if err == nil && status != http.StatusAccepted {
		err = fmt.Errorf("%d %s", status, answer)
	}
	return err
}
