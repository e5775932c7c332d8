package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"ringfence.dev/proto/openapi"
)

type status struct {
	Short bool `help:"Leave out the wallets and the webhook subscriptions of the workspaces."`
}

// statusTrunk contains the fields of a trunk that the command prints.
type statusTrunk struct {
	Name, State   string
	ChannelsInUse int `json:"channels_in_use"`
	Channels      int
	Recent        struct{ Calls, Failures int }
}

// statusAnswers contains the responses of /admin/v1 that the command prints.
type statusAnswers struct {
	services struct {
		Version  string // the version of the gateway
		Services []struct {
			Name     string
			Ready    bool
			Versions []string
		}
	}
	trunks []statusTrunk
	dialer struct {
		Replicas []struct {
			SIP *json.RawMessage // nil if the dialer uses the simulated carrier
		}
		AgentCircuits []struct {
			Replica, Kind string
			WorkspaceID   string `json:"workspace_id"`
		} `json:"agent_circuits"`
		Queue struct {
			Due, Scheduled   int
			Paused           int
			OldestDueSeconds float64 `json:"oldest_due_seconds"`
			LiveOutbound     int     `json:"live_outbound"`
			LiveInbound      int     `json:"live_inbound"`
		}
		Pauses []pausedScope
	}
	// parked contains the records that services could not apply. parkedFault is the reason why they
	// could not be read, or "".
	parked struct {
		Data []struct {
			Service, Topic string
			ParkedAt       openapi.Timestamp `json:"parked_at"`
		}
		HasMore bool `json:"has_more"`
	}
	parkedFault string
	// fault is the reason why the dialer did not respond, or "" if it responded.
	fault string
	// customers contains the workspaces that need attention. customerFault is the reason why they
	// could not be read, or "".
	customers     []customerStatus
	customerFault string
}

func (c status) Run(ctx context.Context, d *Client, of Named) error {
	var found statusAnswers
	services, err := get(ctx, d, "services", &found.services)
	if err != nil {
		return err
	}
	dialer, trunks, err := found.readDialer(ctx, d)
	if err != nil { // the other services are printed even if the dialer does not respond
		found.fault = err.Error()
	}
	parked, err := get(ctx, d, "parked-records", &found.parked)
	if err != nil {
		found.parkedFault = err.Error()
	}
	if !c.Short {
		if found.customers, err = d.checkCustomers(ctx, string(of)); err != nil {
			found.customerFault = err.Error()
		}
	}
	lines, down := found.format()
	if d.JSON() {
		err = printJSON(d, map[string]any{
			"services": services, "trunks": trunks, "dialer": dialer, "parked": parked, "workspaces": found.customers,
			"down": down,
		})
	} else {
		err = printLines(d, lines)
	}
	if err == nil && len(down) > 0 {
		err = fmt.Errorf("down: %s", strings.Join(down, ", "))
	}
	return err
}

func (s *statusAnswers) readDialer(
	ctx context.Context, d *Client,
) (dialer json.RawMessage, trunks []json.RawMessage, err error) {
	if dialer, err = get(ctx, d, "dialer", &s.dialer); err != nil {
		return nil, nil, err
	}
	if trunks, err = d.Members(ctx, At("trunks"), nil); err != nil {
		return nil, nil, err
	}
	for _, member := range trunks {
		var one statusTrunk
		if err := json.Unmarshal(member, &one); err != nil {
			return nil, nil, fmt.Errorf("read the response: %w", err)
		}
		s.trunks = append(s.trunks, one)
	}
	return dialer, trunks, nil
}

func printLines(d *Client, lines []string) error {
	for _, line := range lines {
		if err := d.Say(line); err != nil {
			return err
		}
	}
	return nil
}

func printJSON(d *Client, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	return d.Member(encoded)
}

func get(ctx context.Context, d *Client, path string, into any) (json.RawMessage, error) {
	answer, err := d.Ask(ctx, http.MethodGet, At(path), nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	return answer, nil
}

func statusLine(what, state, format string, args ...any) string {
	return fmt.Sprintf("%-8s  %-12s  %s", what, state, fmt.Sprintf(format, args...))
}

// formatCustomers returns the lines about the workspaces.
func (s statusAnswers) formatCustomers() (lines []string) {
	if s.customerFault != "" {
		lines = append(lines, statusLine("wallets", "no answer", "%s", s.customerFault))
	}
	for _, one := range s.customers {
		lines = append(lines, one.lines()...)
	}
	return lines
}

// formatParked returns a line for each service and topic with parked records.
func (s statusAnswers) formatParked() (lines []string) {
	if s.parkedFault != "" {
		return []string{statusLine("records", "no answer", "%s", s.parkedFault)}
	}
	type source struct{ service, topic string }
	counts, oldest := map[source]int{}, map[source]time.Time{}
	var order []source
	for _, record := range s.parked.Data { // newest first
		from := source{record.Service, record.Topic}
		if counts[from] == 0 {
			order = append(order, from)
		}
		counts[from]++
		if at := record.ParkedAt.Time; oldest[from].IsZero() || at.Before(oldest[from]) {
			oldest[from] = at
		}
	}
	for _, from := range order {
		lines = append(lines, statusLine("records", fmt.Sprintf("%d parked", counts[from]),
			"%s of %s, since %s, `ringfence services parked %s` lists them", from.topic, from.service,
			oldest[from].UTC().Format(time.RFC3339), from.service))
	}
	if s.parked.HasMore {
		lines = append(lines, statusLine("records", "more parked", "only the newest records of each service were counted"))
	}
	return lines
}

// format returns the lines to print, and the names of the components that are down.
func (s statusAnswers) format() (lines, down []string) {
	line := func(what, state, format string, args ...any) {
		lines = append(lines, statusLine(what, state, format, args...))
	}
	down = []string{}
	if s.services.Version != "" {
		line("service", "ready", "gateway, version %s", s.services.Version)
	}
	for _, one := range s.services.Services {
		state := "ready"
		if !one.Ready {
			state, down = "not ready", append(down, "service "+one.Name)
		}
		version := ""
		if len(one.Versions) > 0 {
			version = ", version " + strings.Join(one.Versions, " and ")
		}
		line("service", state, "%s%s", one.Name, version)
	}
	lines = append(lines, s.formatParked()...)
	for _, t := range s.trunks {
		switch t.State {
		case "down", "circuit_open", "mixed":
			down = append(down, "trunk "+t.Name)
		}
		line("trunk", t.State, "%s, %d of %d channels in use, %d of %d calls failed in five minutes",
			t.Name, t.ChannelsInUse, t.Channels, t.Recent.Failures, t.Recent.Calls)
	}
	if missing := s.noTrunk(); missing != "" && s.activeTrunks() == 0 {
		line("trunk", "none", "%s", missing)
		down = append(down, "no active trunk")
	}
	for _, c := range s.dialer.AgentCircuits {
		owner := "of workspace " + c.WorkspaceID // the customer, not the operator, must repair this model
		if c.WorkspaceID == "" {
			owner = "of the operator"
			down = append(down, "model "+c.Kind+" "+owner)
		}
		line("model", "circuit_open", "%s %s, at replica %s", c.Kind, owner, c.Replica)
	}
	if s.fault != "" {
		line("dialer", "no answer", "%s", s.fault)
		return append(lines, s.formatCustomers()...), append(down, "dialer")
	}
	for _, pause := range s.dialer.Pauses {
		line("dialing", "paused", "%s", pause.describe())
	}
	queue := s.dialer.Queue
	oldest := time.Duration(queue.OldestDueSeconds * float64(time.Second)).Round(time.Second)
	line("queue", fmt.Sprintf("%d due", queue.Due), "oldest %s, %d scheduled, %d outbound and %d inbound calls live",
		oldest, queue.Scheduled, queue.LiveOutbound, queue.LiveInbound)
	if queue.Paused > 0 {
		line("queue", fmt.Sprintf("%d paused", queue.Paused), "due, but dialing is paused")
	}
	return append(lines, s.formatCustomers()...), down
}

func (s statusAnswers) activeTrunks() (active int) {
	for _, t := range s.trunks {
		if t.State != "disabled" {
			active++
		}
	}
	return active
}

// noTrunk returns the reason why no call can be placed over a SIP trunk now. It returns "" if a
// call can be placed, or if calls use the simulated carrier.
func (s statusAnswers) noTrunk() string {
	usesSIP := false
	for _, one := range s.dialer.Replicas {
		usesSIP = usesSIP || one.SIP != nil
	}
	if !usesSIP {
		return ""
	}
	if s.activeTrunks() == 0 {
		return "no SIP trunk is active: add one with `ringfence trunks add`, or enable one"
	}
	var states []string
	for _, t := range s.trunks {
		switch t.State {
		case "up", "mixed":
			return ""
		case "disabled":
		default:
			states = append(states, t.Name+" is "+t.State)
		}
	}
	return "no SIP trunk takes calls: " + strings.Join(states, ", ") + "; `ringfence trunks check NAME` shows why"
}
