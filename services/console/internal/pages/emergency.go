package pages

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) emergencyRoutes() []route {
	return []route{
		{"GET /operator/emergency", showSystemEmergency},
		{"POST /operator/emergency", changeSystemDialing},
		{"GET /w/{workspace}/emergency", showWorkspaceEmergency},
		{"POST /w/{workspace}/emergency", changeWorkspaceDialing},
		{"POST /w/{workspace}/emergency/hangup", hangUpWorkspace},
	}
}

// The levels of a pause.
const (
	everything     = "everything"
	workspaceLevel = "workspace"
	agentLevel     = "agent"
	trunkLevel     = "trunk"
)

// scopeChoice is one choice of the form: all dialing, a workspace, an agent or a trunk. Value is
// the value of the form field: the level and the ids, separated by colons.
type scopeChoice struct {
	Level, Value, Name string
}

// activePause is a pause with the name of its scope. Scope is empty if the workspace of a paused
// agent is unknown.
type activePause struct {
	gateway.Pause
	Name  string
	Scope string
	// Workspace is the workspace of the scope, or uuid.Nil.
	Workspace uuid.UUID
}

// pauseForm contains what the person entered into the form that pauses dialing.
type pauseForm struct {
	Scope, Reason, Until string
	Choices              []scopeChoice
	Fault                *fault
	// Word is the word that the person must type to confirm the pause.
	Word string
}

// dialingPath returns the API path that pauses or resumes the given scope of the form. It returns
// false if the scope is not valid.
func (v *visit) dialingPath(scope string) (string, bool) {
	level, rest, _ := strings.Cut(scope, ":")
	var ids []string
	for text := range strings.SplitSeq(rest, ":") {
		id, err := uuid.Parse(text)
		if err != nil && level != everything {
			return "", false
		}
		ids = append(ids, id.String())
	}
	switch {
	case level == everything:
		return "/admin/v1/dialing", true
	case level == workspaceLevel && len(ids) == 1 && v.me.Operator:
		return "/admin/v1/workspaces/" + ids[0] + "/dialing", true
	case level == workspaceLevel && len(ids) == 1:
		return "/v1/dialing", true
	case level == trunkLevel && len(ids) == 1:
		return "/admin/v1/trunks/" + ids[0] + "/dialing", true
	case level == agentLevel && len(ids) == 2:
		return "/admin/v1/workspaces/" + ids[0] + "/agents/" + ids[1] + "/dialing", true
	}
	return "", false
}

// setDialing pauses or resumes the scope of the form. The form gives the end of a pause in the time
// zone of the person.
func (v *visit) setDialing() (done string, err error) {
	path, ok := v.dialingPath(v.form("scope"))
	if !ok {
		return "", errNotFound
	}
	body, done := map[string]string{"state": "active"}, "dialing_resumed"
	if v.form("state") == "paused" {
		body["state"], done = "paused", "dialing_paused"
	}
	if reason := v.form("reason"); reason != "" {
		body["reason"] = reason
	}
	if until := v.form("until"); until != "" {
		body["until"] = until
		if at, ok := v.localTime(until); ok {
			body["until"] = at
		}
	}
	_, err = gateway.Do[openapi.Dialing](v.r.Context(), v.Session,
		gateway.Request{Method: http.MethodPut, Path: path, Body: body})
	return done, err
}

func (v *visit) pauseForm() pauseForm {
	word := v.pauseWord()
	if v.r.Method == http.MethodGet {
		return pauseForm{Scope: v.query("scope"), Word: word}
	}
	return pauseForm{Scope: v.form("scope"), Reason: v.form("reason"), Until: v.form("until"), Word: word}
}

func (v *visit) pauseWord() string {
	return v.server.templates.text(v.settings.Language, "emergency.word")
}

// pauseConfirmed reports whether the form resumes dialing, or the person typed the word that
// confirms a pause.
func (v *visit) pauseConfirmed() bool {
	return v.form("state") != "paused" || v.form("confirmation") == v.pauseWord()
}

// stopChange is an entry of the audit log: a hang-up, or a pause or resumption of dialing.
type stopChange struct {
	Actor  string
	Route  string
	At     openapi.Timestamp
	State  string
	Reason string
}

type systemEmergencyData struct {
	Dialer  dialerState
	Trunks  []trunk
	Pauses  []activePause
	Form    pauseForm
	Changes []stopChange
	// MoreWorkspaces is true if the form does not offer every workspace.
	MoreWorkspaces bool
}

func showSystemEmergency(v *visit) (view, error) { return v.systemEmergency(nil) }

func (v *visit) systemEmergency(refused *fault) (view, error) {
	var (
		data       systemEmergencyData
		workspaces gateway.Page[gateway.Workspace]
		trunks     gateway.Page[trunk]
		entries    gateway.Page[operatorAuditEntry]
		all        = url.Values{"limit": {"100"}}
	)
	err := concurrently(
		read(v, &data.Dialer, "/admin/v1/dialer", nil),
		read(v, &workspaces, "/admin/v1/workspaces", all),
		readOptional(v, &trunks, "/admin/v1/trunks", all),
		readOptional(v, &entries, "/admin/v1/audit", all),
	)
	data.Trunks, data.MoreWorkspaces = trunks.Data, workspaces.HasMore
	data.Form = v.pauseForm()
	data.Form.Fault = refused
	data.Form.Choices = []scopeChoice{{Level: everything, Value: everything}}
	for _, w := range workspaces.Data {
		data.Form.Choices = append(data.Form.Choices,
			scopeChoice{workspaceLevel, workspaceLevel + ":" + w.ID.String(), w.Name})
	}
	for _, t := range trunks.Data {
		data.Form.Choices = append(data.Form.Choices, scopeChoice{trunkLevel, trunkLevel + ":" + t.ID.String(), t.Name})
	}
	known := slices.ContainsFunc(data.Form.Choices, func(c scopeChoice) bool { return c.Value == data.Form.Scope })
	if _, valid := v.dialingPath(data.Form.Scope); valid && !known {
		level, id, _ := strings.Cut(data.Form.Scope, ":")
		data.Form.Choices = append(data.Form.Choices, scopeChoice{level, data.Form.Scope, id})
	}
	for _, pause := range data.Dialer.Pauses {
		data.Pauses = append(data.Pauses, activePauseOf(pause, data.Form.Choices, entries.Data))
	}
	data.Changes = stopChanges(entries.Data)
	result := view{template: "emergency_system", title: "emergency.title", data: data}
	if refused != nil {
		result.status = refused.Status
	}
	return result, err
}

// activePauseOf adds the name of the scope to a pause. The API returns the pause of an agent
// without the agent's workspace, so the workspace is read from the audit entry of the pause.
func activePauseOf(pause gateway.Pause, choices []scopeChoice, entries []operatorAuditEntry) activePause {
	found := activePause{Pause: pause, Scope: pause.Level}
	if pause.ID == nil {
		return found
	}
	id := pause.ID.String()
	found.Scope, found.Name = pause.Level+":"+id, id[:8]
	switch pause.Level {
	case workspaceLevel:
		found.Workspace = *pause.ID
	case agentLevel:
		found.Scope = ""
		for _, entry := range entries {
			if entry.WorkspaceID != nil && strings.HasSuffix(entry.Path, "/agents/"+id+"/dialing") {
				found.Workspace = *entry.WorkspaceID
				found.Scope = agentLevel + ":" + found.Workspace.String() + ":" + id
				break
			}
		}
	}
	for _, choice := range choices {
		if found.Scope != "" && choice.Value == found.Scope {
			found.Name = choice.Name
		}
	}
	return found
}

// shownChanges is the number of changes that the page shows.
const shownChanges = 10

// stopChanges returns the newest changes of dialing and the newest hang-ups.
func stopChanges(entries []operatorAuditEntry) (changes []stopChange) {
	for _, entry := range entries {
		stops := strings.HasSuffix(entry.Route, "/dialing") || strings.HasSuffix(entry.Route, "/hangup")
		if !stops || len(changes) == shownChanges {
			continue
		}
		change := stopChange{Actor: entry.Operator, Route: entry.Route, At: entry.OccurredAt}
		var after struct{ State, Reason string }
		// if the entry has no state after the change, the page shows only the route of the request
		if json.Unmarshal(entry.After, &after) == nil {
			change.State, change.Reason = after.State, after.Reason
		}
		changes = append(changes, change)
	}
	return changes
}

// changeSystemDialing pauses or resumes dialing. To pause dialing, the person must type a
// confirmation word.
func changeSystemDialing(v *visit) (view, error) {
	if !v.pauseConfirmed() {
		return view{redirect: "/operator/emergency", done: "not_confirmed"}, nil
	}
	done, err := v.setDialing()
	if refused := faultOf(err); refused != nil {
		return v.systemEmergency(refused)
	}
	return view{redirect: "/operator/emergency", done: done}, err
}

type workspaceEmergencyData struct {
	Dialing openapi.Dialing
	Pauses  []activePause
	Form    pauseForm
	Calls   []openapi.CallListItem
	Agents  agentNames
	// MoreCalls is true if more calls run than are shown. MoreAgents is true if the state of some
	// agents is not shown.
	MoreCalls, MoreAgents bool
}

// agentStates is the number of agents whose state the page reads for a member. For an operator, one
// request returns all pauses.
const agentStates = 25

func showWorkspaceEmergency(v *visit) (view, error) { return v.workspaceEmergency(nil) }

func (v *visit) workspaceEmergency(refused *fault) (view, error) {
	data := workspaceEmergencyData{Form: v.pauseForm()}
	var agents gateway.Page[gateway.Agent]
	var dialer dialerState
	reads := []func() error{
		read(v, &data.Dialing, "/v1/dialing", nil),
		v.readLive(&data.Calls, &data.MoreCalls, "60"),
		v.readAgents(&agents),
	}
	if v.me.Operator {
		reads = append(reads, read(v, &dialer, "/admin/v1/dialer", nil))
	}
	if err := concurrently(reads...); err != nil {
		return view{}, err
	}
	data.Agents = agents.Data
	pauses := dialer.Pauses
	if !v.me.Operator && !v.Background {
		states, err := v.agentPauses(agents.Data[:min(agentStates, len(agents.Data))])
		if err != nil {
			return view{}, err
		}
		pauses, data.MoreAgents = states, len(agents.Data) > agentStates
	}
	own := workspaceLevel + ":" + v.workspace.String()
	data.Form.Choices = []scopeChoice{{Level: workspaceLevel, Value: own}}
	if data.Dialing.State == openapi.DialingStatePaused {
		pause := gateway.Pause{Level: workspaceLevel, ID: &v.workspace, Dialing: data.Dialing}
		data.Pauses = []activePause{{Pause: pause, Scope: own}}
		data.Form.Choices = nil
	}
	for _, agent := range agents.Data {
		scope := agentLevel + ":" + v.workspace.String() + ":" + agent.ID.String()
		at := slices.IndexFunc(pauses, func(p gateway.Pause) bool {
			return p.Level == agentLevel && p.ID != nil && *p.ID == agent.ID
		})
		if at < 0 {
			data.Form.Choices = append(data.Form.Choices, scopeChoice{agentLevel, scope, agent.Name})
			continue
		}
		data.Pauses = append(data.Pauses, activePause{Pause: pauses[at], Name: agent.Name, Scope: scope})
	}
	data.Form.Fault = refused
	result := view{template: "emergency", title: "emergency.title", data: data}
	if refused != nil {
		result.status = refused.Status
	}
	return result, nil
}

// agentPauses reads the state of each agent and returns the pauses.
func (v *visit) agentPauses(agents []gateway.Agent) (pauses []gateway.Pause, err error) {
	states := make([]openapi.Dialing, len(agents))
	var reads []func() error
	for i, agent := range agents {
		reads = append(reads, readOptional(v, &states[i], v.admin("/agents/%s/dialing", agent.ID), nil))
	}
	if err := concurrently(reads...); err != nil {
		return nil, err
	}
	for i, state := range states {
		if state.State == openapi.DialingStatePaused {
			pauses = append(pauses, gateway.Pause{Level: agentLevel, ID: &agents[i].ID, Dialing: state})
		}
	}
	return pauses, nil
}

// changeWorkspaceDialing pauses or resumes the workspace of the page, or one of its agents. To
// pause dialing, the person must type a confirmation word.
func changeWorkspaceDialing(v *visit) (view, error) {
	level, rest, _ := strings.Cut(v.form("scope"), ":")
	_, valid := v.dialingPath(v.form("scope"))
	if !valid || level != workspaceLevel && level != agentLevel || !strings.HasPrefix(rest, v.workspace.String()) {
		return view{}, errNotFound
	}
	if !v.pauseConfirmed() {
		return view{redirect: v.path("emergency"), done: "not_confirmed"}, nil
	}
	done, err := v.setDialing()
	if refused := faultOf(err); refused != nil {
		return v.workspaceEmergency(refused)
	}
	return view{redirect: v.path("emergency"), done: done}, err
}

// hangUpWorkspace hangs up all calls of a workspace. The person must type its name as a
// confirmation.
func hangUpWorkspace(v *visit) (view, error) {
	found, err := gateway.Get[gateway.Workspace](v.r.Context(), v.Session, v.admin(""), nil)
	if err != nil {
		return view{}, err
	}
	if !v.confirmed(found.Name) {
		return view{redirect: v.path("emergency"), done: "not_confirmed"}, nil
	}
	hungUp, err := gateway.Post[struct {
		Calls int64 `json:"calls"`
	}](v.r.Context(), v.Session, v.admin("/hangup"), nil)
	done := "all_hung_up"
	if hungUp.Calls == 0 {
		done = "no_calls"
	}
	return view{redirect: v.path("emergency"), done: done}, err
}
