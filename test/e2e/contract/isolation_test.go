package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"

	"ringfence.dev/test/kit/sharedstack"
)

// TestIsolation_ProbesCoverEveryOperation requires for each operation of the API a probe that sends
// an id of another workspace.
func TestIsolation_ProbesCoverEveryOperation(t *testing.T) {
	var described struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(openapi.Description, &described); err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, p := range probes(&otherWorkspace{}) {
		tried[p.operation] = true
	}
	for path, item := range described.Paths {
		for _, method := range []string{"get", "put", "post", "patch", "delete", "head", "options", "trace"} {
			operation := strings.ToUpper(method) + " " + path
			// Paths outside of /v1 do not belong to a workspace.
			if _, there := item[method]; !there || !strings.HasPrefix(path, "/v1/") {
				continue
			}
			if !tried[operation] {
				t.Errorf("%s has no isolation test: add a probe of it to probes()", operation)
			}
			delete(tried, operation)
		}
	}
	if len(tried) != 0 {
		t.Errorf("probes of operations that are not described: %v", slices.Sorted(maps.Keys(tried)))
	}
}

// probe is a request that names an object of another workspace. The object's id replaces {x} in
// path, body and key. The id of an agent of the caller's workspace replaces {agent}.
type probe struct {
	operation, name string
	path            string
	body            string
	key             string
	// theirs is the id of an object of the other workspace. nobodys is an id of the same kind that
	// does not exist.
	theirs, nobodys string
}

func (p probe) title() string { return p.operation + ", " + p.name }

// sendProbe sends the probe. In the response it replaces the parts that differ each time, so that
// two responses can be compared.
func (p probe) sendProbe(t *testing.T, c *client, base, agent, value string) answer {
	t.Helper()
	method, _, _ := strings.Cut(p.operation, " ")
	fill := strings.NewReplacer("{agent}", agent, "{x}", value).Replace
	var body any
	if p.body != "" {
		body = fill(p.body)
	}
	var header []string
	if p.key != "" {
		header = []string{"Idempotency-Key", fill(p.key)}
	}
	got := c.send(t, method, base+strings.NewReplacer("{x}", url.QueryEscape(value)).Replace(p.path), body, header...)
	got.body = strings.ReplaceAll(got.body, value, "{x}")
	for blank, what := range map[string]*regexp.Regexp{
		"{id}":     regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`),
		"{time}":   regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`),
		"{sum}":    regexp.MustCompile(`[0-9a-f]{64}`), // the hash of a subject in the register of erasures
		"{secret}": regexp.MustCompile(`whsec_[^"]+`),
	} {
		got.body = what.ReplaceAllString(got.body, blank)
	}
	return got
}

// compareIDs sends the probe with both ids and requires equal responses.
func (p probe) compareIDs(t *testing.T, c *client, base, agent string) answer {
	t.Helper()
	nobodys := p.sendProbe(t, c, base, agent, p.nobodys)
	theirs := p.sendProbe(t, c, base, agent, p.theirs)
	sharedstack.Equal(t, p.title()+": theirs.status", theirs.status, nobodys.status)
	sharedstack.Equal(t, p.title()+": theirs.body", theirs.body, nobodys.body)
	sharedstack.Equal(t, p.title()+": names(theirs.header)", names(theirs.header), names(nobodys.header))
	return theirs
}

func names(header http.Header) []string { return slices.Sorted(maps.Keys(header)) }

type otherWorkspace struct {
	*tenant
	contact, call, event, request, subscription string
	// dialed is the request of the call, and outcome is the outcome of the call.
	dialed, outcome string
	// number is the number of a contact. The numbers optedOut and optedOutToo are opted out. An
	// operator added a consent record for the number consented.
	number, optedOut, optedOutToo, consented string
	delivery, inbound, transaction, record   string
	decision, list, erasure, entry           string
	// requestTo is the called number of the call request `request`.
	requestTo, erasedNumber string
	// spare is another subscription, with the delivery spareDelivery.
	spare, spareDelivery string
	// attempt is the newer of two attempts of the call.
	attempt string
	// member is a person with a role in the workspace, and invitation is an open invitation to it.
	member, invitation string
}

const (
	otherName  = "Ottilie Fremdling"
	otherEmail = "ottilie@example.com"
	// otherExternalID is the external_id of the contact.
	otherExternalID = "an id of theirs"
	otherRef        = "a reference of theirs"
	otherKey        = "a-key-of-theirs"
	otherHeaderKey  = "a-key-of-theirs-in-a-header"
)

func newOtherWorkspace(t *testing.T) *otherWorkspace {
	t.Helper()
	s := &otherWorkspace{
		tenant: workspace(t), number: number(1), optedOut: number(1), optedOutToo: number(1), consented: number(1),
	}
	s.topUp(t, "100")
	contact := set{"phone_e164": s.number, "name": otherName, "metadata": set{"a": 1}}
	s.contact = s.write.want(t, 201, "POST", "/v1/contacts", contact).text("id")
	s.dialed = s.write.want(t, 202, "POST", "/v1/calls", s.order(s.number, "external_ref", otherRef)).text("id")
	s.call = s.ended(t, s.dialed).text("call_id")
	s.event = uuid.NewSHA1(uuid.MustParse(s.call), []byte("call.completed")).String()
	order := s.order(number(1), "external_ref", otherRef, "idempotency_key", otherKey, "scheduled_for", ahead())
	s.request = s.write.want(t, 202, "POST", "/v1/calls", order).text("id")
	order = s.order(number(1), "scheduled_for", ahead())
	s.write.want(t, 202, "POST", "/v1/calls", order, "Idempotency-Key", otherHeaderKey)
	s.write.want(t, 200, "PUT", dialing, set{"state": "active", "reason": otherName})
	until(t, "the call is charged and has an outcome", func() bool {
		call := s.read.want(t, 200, "GET", "/v1/calls/"+s.call, nil)
		s.outcome = call.text("outcome")
		return call.text("credits_charged") != "" && s.outcome != ""
	})
	// The test inserts two attempts, because the calls of this stack are simulated. Only a call over a
	// trunk has attempts.
	const insertAttempt = `INSERT INTO dialer.sip_attempts (attempt_id, call_id, trunk_id, trunk, sip_call_id)
		VALUES ($1, $2, gen_random_uuid(), 'a trunk of theirs', 'a Call-ID of theirs')`
	for range 2 {
		s.attempt = unknownID()
		if _, err := database(t).Exec(t.Context(), insertAttempt, s.attempt, s.call); err != nil {
			t.Fatal(err)
		}
	}
	s.member = unknownID()
	const insertMember = `WITH person AS (INSERT INTO gateway.people (id, name) VALUES ($1, $3) RETURNING id)
		INSERT INTO gateway.memberships (person_id, workspace_id, role) SELECT id, $2, 'viewer' FROM person`
	if _, err := database(t).Exec(t.Context(), insertMember, s.member, s.id, otherName); err != nil {
		t.Fatal(err)
	}
	s.invitation = s.operator.want(t, 201, "POST", s.admin+"/invitations", set{"role": "owner"}).text("id")
	for _, to := range []string{s.optedOut, s.optedOutToo} {
		s.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to})
	}
	for _, to := range []string{s.number, s.consented} {
		s.operator.want(t, 200, "PUT", s.admin+"/contacts/"+to+"/consent", set{"status": "consented", "source": "form"})
	}
	s.write.want(t, 200, "PATCH", "/v1/contacts/"+s.contact, set{"email": otherEmail, "external_id": otherExternalID})
	s.record = s.operator.want(t, 200, "GET", s.admin+"/consent-records", nil).ids()[0]
	s.decision = s.operator.want(t, 200, "GET", s.admin+"/decisions", nil).ids()[0]
	s.requestTo = s.read.want(t, 200, "GET", "/v1/call-requests/"+s.request, nil).text("to")
	s.operator.want(t, 200, "PUT", s.admin+"/agent-keys/"+s.agent, set{"key": agentKey})
	s.erasedNumber = number(1)
	erased := s.operator.want(t, 200, "DELETE", s.admin+"/contacts/"+s.erasedNumber, nil).members()
	s.erasure, _ = erased["erasure"].(map[string]any)["id"].(string)
	s.list = s.operator.want(t, 201, "POST", s.admin+"/opt-out-imports", set{"reason": "bought"}).text("id")
	s.transaction = s.operator.want(t, 200, "GET", s.admin+"/wallet/transactions", nil).ids()[0]
	s.inbound = s.operator.want(t, 201, "POST", s.admin+"/numbers", set{"phone_e164": number(1), "agent_id": s.agent}).text("id")
	for range 5 { // the maximum number of subscriptions
		s.spare = s.subscription
		s.subscription = s.write.want(t, 201, "POST", subscriptions, subscription(stack(t).Hooks.URL+"/"+s.id)).text("id")
	}
	s.delivery = s.write.want(t, 202, "POST", subscriptions+"/"+s.subscription+"/test", nil).text("delivery_id")
	s.spareDelivery = s.write.want(t, 202, "POST", subscriptions+"/"+s.spare+"/test", nil).text("delivery_id")
	until(t, "the tests are delivered", func() bool {
		hooks := s.admin + "/webhook-subscriptions/"
		return s.operator.want(t, 200, "GET", hooks+s.subscription, nil).text("last_success_at") != "" &&
			s.operator.want(t, 200, "GET", hooks+s.spare, nil).text("last_success_at") != ""
	})
	s.entry = s.write.want(t, 200, "GET", auditLog, nil).ids()[0]
	return s
}

func ahead() string { return time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339) }

func (s *otherWorkspace) everything(t *testing.T) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for _, path := range []string{
		"/v1/calls?limit=100", "/v1/calls/" + s.call, "/v1/call-requests?limit=100", "/v1/contacts?limit=100",
		"/v1/decisions?limit=100", "/v1/wallet", "/v1/usage?month=" + thisMonth(), dialing, subscriptions + "?limit=100",
		"/v1/opt-outs/" + s.number, "/v1/opt-outs/" + s.optedOut, "/v1/opt-outs/" + s.optedOutToo, "/v1/opt-outs/" + s.consented,
	} {
		seen[path] = s.read.want(t, 200, "GET", path, nil).body
	}
	for _, path := range []string{
		"", "/api-keys", "/members", "/invitations",
		"/agents", "/numbers", "/usage?month=" + thisMonth(), "/wallet", "/wallet/transactions", "/rates",
		"/consent-records?limit=100", "/decisions?limit=100", "/opt-out-imports",
		"/webhook-subscriptions/" + s.subscription, "/webhook-subscriptions/" + s.subscription + "/deliveries/" + s.delivery,
		"/webhook-subscriptions/" + s.spare, "/webhook-subscriptions/" + s.spare + "/deliveries/" + s.spareDelivery,
		"/agent-keys/" + s.agent,
	} {
		seen[path] = s.operator.want(t, 200, "GET", s.admin+path, nil).body
	}
	seen["audit"] = s.operator.want(t, 200, "GET", "/admin/v1/audit?limit=100&workspace_id="+s.id, nil).body
	return seen
}

// TestIsolation_ObjectsOfAnotherWorkspaceAreNotFound sends every probe as a customer and as an
// operator. The other workspace must be unchanged. The same probe by the other workspace must get
// another response, because a probe that always gets "not found" proves nothing.
func TestIsolation_ObjectsOfAnotherWorkspaceAreNotFound(t *testing.T) {
	s, w := newOtherWorkspace(t), workspace(t)
	w.topUp(t, "100")
	before := s.everything(t)
	responses := map[string]answer{}
	for _, p := range probes(s) {
		responses[p.title()] = p.compareIDs(t, w.write, "", w.agent)
	}
	for _, p := range allOperatorProbes(s) {
		responses[p.title()] = p.compareIDs(t, w.operator, w.admin, w.agent)
	}
	after := s.everything(t)
	for what, was := range before {
		if after[what] != was {
			t.Errorf("a request of another workspace changed %s:\n before %s\n after  %s", what, was, after[what])
		}
	}
	mustTell := func(p probe, own answer) {
		// This operation names no object. Its probe shows only that the other workspace is unchanged.
		if p.operation == "PUT "+dialing {
			return
		}
		if strange := responses[p.title()]; own.status == strange.status && own.body == strange.body {
			t.Errorf("%s: its owner gets the same response %d %s, so the probe shows nothing", p.title(), own.status, own.body)
		}
	}
	operate := func(reads bool) {
		for _, p := range allOperatorProbes(s) {
			if strings.HasPrefix(p.operation, "GET ") == reads {
				mustTell(p, p.sendProbe(t, s.operator, s.admin, s.agent, p.theirs))
			}
		}
	}
	operate(true) // the reads come first, because the customer's probes delete objects
	for _, p := range probes(s) {
		mustTell(p, p.sendProbe(t, s.write, "", s.agent, p.theirs))
	}
	// the changes come last, because one of them revokes the API key that the customer's probes use
	operate(false)
}

func unknownID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Sprint(err)
	}
	return id.String()
}
