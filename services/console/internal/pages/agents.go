package pages

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) agentRoutes() []route {
	return []route{
		{"GET /w/{workspace}/agents", listAgents},
		{"GET /w/{workspace}/agents/new", permitted("build", showNewAgent)},
		{"POST /w/{workspace}/agents/new", createAgent},
		{"GET /w/{workspace}/agents/{agent}", showAgent},
		{"POST /w/{workspace}/agents/{agent}", changeAgent},
		{"POST /w/{workspace}/agents/{agent}/key", setAgentKey},
		{"POST /w/{workspace}/agents/{agent}/delete", deleteAgent},
	}
}

// agentItem is an agent in the list, with the settings that the list shows.
type agentItem struct {
	ID         uuid.UUID         `json:"id"`
	Name       string            `json:"name"`
	Kind       *string           `json:"kind"`
	Model      *string           `json:"model"`
	Language   *string           `json:"language"`
	Voice      *string           `json:"voice"`
	FromNumber *string           `json:"from_number"`
	UpdatedAt  openapi.Timestamp `json:"updated_at"`
	Retiring   []retiringModel   `json:"retiring_models"`
}

type retiringModel struct {
	Model     string  `json:"model"`
	RetiresOn string  `json:"retires_on"`
	Successor *string `json:"successor"`
}

func listAgents(v *visit) (view, error) {
	var data struct {
		gateway.Page[agentItem]
		Last string
	}
	err := concurrently(read(v, &data.Page, v.admin("/agents"), v.listQuery()))
	data.Last = lastID(data.Page, func(a agentItem) uuid.UUID { return a.ID })
	return view{template: "agents", title: "agents.title", nav: "agents", data: data}, err
}

// agentSettings contains the settings of an agent by name, as the API returns them.
type agentSettings map[string]json.RawMessage

// fixedFields are the fields of an agent that the settings in the form must not contain.
var fixedFields = []string{"id", "name", "created_at", "updated_at", "retiring_models"}

// editable returns the settings that the form shows.
func (s agentSettings) editable() agentSettings {
	shown := maps.Clone(s)
	for _, name := range fixedFields {
		delete(shown, name)
	}
	for name, value := range shown {
		if string(value) == "null" {
			delete(shown, name)
		}
	}
	return shown
}

func (s agentSettings) text(name string) (text string) {
	if json.Unmarshal(s[name], &text) != nil {
		return "" // the field is absent or of another type
	}
	return text
}

type agentFormData struct {
	// New is true if the agent does not exist yet.
	New bool
	ID  uuid.UUID
	// Name and Settings are the values of the form. Saved is the stored name.
	Name, Settings, Saved string
	// Version is the ETag of the agent.
	Version  string
	Fault    *fault
	Dialing  openapi.Dialing
	Retiring []retiringModel
	// Opening is what a person hears first. It is nil if it cannot be read.
	Opening  *agentOpening
	Key      *agentKey
	KeyFault *fault
	// Versions are the newest changes of the agent. MoreVersions is true if there are older ones.
	Versions     []agentVersion
	MoreVersions bool
}

// agentOpening is what a person hears first in a call of an agent.
type agentOpening struct {
	SpokenBy   string `json:"spoken_by"`
	Language   string `json:"language"`
	Text       string `json:"text"`
	Translated bool   `json:"translated"`
	Recorded   bool   `json:"recorded"`
	Greeting   string `json:"greeting"`
}

// agentKey shows whether a key is stored for the agent.
type agentKey struct {
	HasKey    bool              `json:"has_key"`
	UpdatedAt openapi.Timestamp `json:"updated_at"`
}

// newAgentSettings are the settings that the form of a new agent proposes.
const newAgentSettings = `{
  "kind": "openai_realtime",
  "language": "en",
  "greeting": "Hello, this is the assistant of Example Ltd.",
  "instructions": "You confirm the appointment of the person and answer questions about it.",
  "disclosure": {
    "text": "I am an AI assistant."
  },
  "max_call_seconds": 600
}`

func agentView(data agentFormData) view {
	result := view{template: "agent", title: "agents.new", nav: "agents", data: data}
	if !data.New {
		result.heading = data.Saved
	}
	for _, refused := range []*fault{data.Fault, data.KeyFault} {
		if refused != nil {
			result.status = refused.Status
		}
	}
	return result
}

func showNewAgent(*visit) (view, error) {
	return agentView(agentFormData{New: true, Settings: newAgentSettings}), nil
}

// readAgentForm returns the body of a request: the settings in the form, and the name. It returns a
// fault if the settings are not a JSON object or contain one of the fixedFields.
func (v *visit) readAgentForm() (agentSettings, *fault) {
	body := agentSettings{}
	if text := v.form("settings"); text != "" && (json.Unmarshal([]byte(text), &body) != nil || body == nil) {
		return nil, v.refusedField("settings", "agents.settings.fault")
	}
	for _, name := range fixedFields {
		if _, given := body[name]; given {
			return nil, v.refusedField("settings", "agents.settings.fixed", name)
		}
	}
	name, err := json.Marshal(v.form("name"))
	body["name"] = name
	if err != nil {
		return nil, v.refusedField("name", "agents.settings.fault")
	}
	return body, nil
}

// agentFault converts an error of the gateway to a fault of the form. The form has one field for
// all settings, so a fault of any setting is shown at this field.
func (v *visit) agentFault(err error) *fault {
	refused := v.faultOf(err)
	if refused != nil && refused.Field != "" && refused.Field != "name" {
		refused.Field = "settings"
	}
	return refused
}

func createAgent(v *visit) (view, error) {
	data := agentFormData{New: true, Name: v.form("name"), Settings: v.form("settings")}
	body, refused := v.readAgentForm()
	if data.Fault = refused; refused != nil {
		return agentView(data), nil
	}
	made, err := gateway.Post[gateway.Agent](v.r.Context(), v.Session, v.admin("/agents"), body)
	if data.Fault = v.agentFault(err); data.Fault != nil {
		return agentView(data), nil
	}
	return view{redirect: v.path("agents", made.ID.String()), done: "agent_created"}, err
}

func (v *visit) agentID() (uuid.UUID, error) {
	id, err := uuid.Parse(v.r.PathValue("agent"))
	if err != nil {
		return id, errNotFound
	}
	return id, nil
}

func showAgent(v *visit) (view, error) { return v.showAgent(func(*agentFormData) {}) }

// showAgent shows the form with the stored settings of an agent. changeForm can replace values of
// the form, for example after a refusal.
func (v *visit) showAgent(changeForm func(*agentFormData)) (view, error) {
	id, err := v.agentID()
	if err != nil {
		return view{}, err
	}
	data := agentFormData{ID: id}
	var agent agentSettings
	reads := []func() error{
		readTagged(v, &agent, &data.Version, v.admin("/agents/%s", id)),
		readOptional(v, &data.Dialing, v.admin("/agents/%s/dialing", id), nil),
		readOptional(v, &data.Opening, v.admin("/agents/%s/opening", id), nil),
	}
	if v.can("listen") {
		reads = append(reads, v.readVersions(&data, id))
	}
	if v.can("build") {
		reads = append(reads, readOptional(v, &data.Key, v.admin("/agent-keys/%s", id), nil))
	}
	if err := concurrently(reads...); err != nil {
		return view{}, err
	}
	settings, err := formatSettings(agent.editable())
	if err != nil {
		return view{}, err
	}
	data.Name, data.Saved = agent.text("name"), agent.text("name")
	data.Settings = v.mask(settings)
	_ = json.Unmarshal(agent["retiring_models"], &data.Retiring) // the field is absent for most agents
	changeForm(&data)
	return agentView(data), nil
}

// formatSettings returns settings as JSON on several lines, without escapes for < and >.
func formatSettings(settings agentSettings) (string, error) {
	values := map[string]any{}
	for name, raw := range settings {
		var value any
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			return "", err
		}
		values[name] = value
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(values)
	return strings.TrimSpace(text.String()), err
}

// changeAgent stores the settings. A setting that is missing in the form gets its default. If
// another person changed the agent since the form was shown, nothing is stored.
func changeAgent(v *visit) (view, error) {
	id, err := v.agentID()
	if err != nil {
		return view{}, err
	}
	before, err := gateway.Get[agentSettings](v.r.Context(), v.Session, v.admin("/agents/%s", id), nil)
	if err != nil {
		return view{}, err
	}
	body, refused := v.readAgentForm()
	v.giveReason() // the reason is optional
	if refused == nil {
		for name := range before.editable() {
			if _, kept := body[name]; !kept {
				body[name] = json.RawMessage("null")
			}
		}
		err = v.patchVersion(v.admin("/agents/%s", id), v.form("version"), body)
		refused = v.agentFault(err)
	}
	if refused != nil {
		return v.showAgent(func(data *agentFormData) {
			data.Name, data.Settings, data.Fault = v.form("name"), v.form("settings"), refused
			if refused.Status != http.StatusPreconditionFailed {
				data.Version = v.form("version") // the version that the person saw
			}
		})
	}
	return view{redirect: v.path("agents", id.String()), done: "agent_changed"}, err
}

// setAgentKey stores or deletes the key of an agent.
func setAgentKey(v *visit) (view, error) {
	id, err := v.agentID()
	if err != nil {
		return view{}, err
	}
	path := v.admin("/agent-keys/%s", id)
	if v.form("delete") != "" {
		return view{redirect: v.path("agents", id.String()), done: "agent_key_deleted"}, v.remove(path)
	}
	_, err = gateway.Do[agentKey](v.r.Context(), v.Session,
		gateway.Request{Method: http.MethodPut, Path: path, Body: map[string]string{"key": v.form("key")}})
	if refused := faultOf(err); refused != nil {
		return v.showAgent(func(data *agentFormData) { data.KeyFault = refused })
	}
	return view{redirect: v.path("agents", id.String()), done: "agent_key_set"}, err
}

// deleteAgent deletes an agent. The person must type its name as a confirmation.
func deleteAgent(v *visit) (view, error) {
	id, err := v.agentID()
	if err != nil {
		return view{}, err
	}
	found, err := gateway.Get[gateway.Agent](v.r.Context(), v.Session, v.admin("/agents/%s", id), nil)
	if err != nil {
		return view{}, err
	}
	if !v.confirmed(found.Name) {
		return view{redirect: v.path("agents", id.String()), done: "not_confirmed"}, nil
	}
	return view{redirect: v.path("agents"), done: "agent_deleted"}, v.remove(v.admin("/agents/%s", id))
}
