package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/aimodel"
	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/calls/internal/agents"
)

// agentBody encodes an agent as JSON. The object contains the fields of the agent, all other
// settings, and the announced retirements of its models.
type agentBody struct{ agents.Agent }

func agentView(a agents.Agent) agentBody { return agentBody{a} }

func (b agentBody) MarshalJSON() ([]byte, error) {
	settings := map[string]json.RawMessage{} // raw JSON, because a number may not fit into a float
	if err := json.Unmarshal(b.Settings, &settings); err != nil {
		return nil, fmt.Errorf("read settings of agent %s: %w", b.ID, err)
	}
	view := make(map[string]any, len(settings)+7)
	for name, value := range settings {
		view[name] = value
	}
	view["id"], view["name"], view["max_call_seconds"], view["from_number"] = b.ID, b.Name, b.MaxCallSeconds, b.From
	view["created_at"], view["updated_at"] = openapi.TimestampOf(page.TimeOf(b.ID)), openapi.TimestampOf(b.UpdatedAt)
	if retiring := b.RetiringModels(); len(retiring) > 0 {
		view["retiring_models"] = retiringViews(retiring)
	}
	return json.Marshal(view)
}

// retiringModel is a model with the day (UTC) on which OpenAI shuts it down or has shut it down.
type retiringModel struct {
	Model     string  `json:"model"`
	RetiresOn string  `json:"retires_on"`
	Successor *string `json:"successor"`
}

func retiringViews(retiring []aimodel.Retirement) []retiringModel {
	views := make([]retiringModel, len(retiring))
	for i, r := range retiring {
		views[i] = retiringModel{Model: r.Model, RetiresOn: r.At.Format(time.DateOnly)}
		if r.Successor != "" {
			views[i].Successor = &r.Successor
		}
	}
	return views
}

// addAgent handles POST /admin/v1/workspaces/{id}/agents. It responds when the dialer has stored
// the agent.
func (a *API) addAgent(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := pathWorkspace(r)
	if err != nil {
		return err
	}
	var body map[string]json.RawMessage
	if err = httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make agent id: %w", err)
	}
	added, err := agents.New(id, workspaceID, body)
	if err != nil {
		return err
	}
	if added, err = a.store.AddAgent(r.Context(), added, a.now()); err != nil {
		return err
	}
	httpserver.SetETag(w, added.Version) // also for a 503, because the agent is stored
	if err := a.publishAgent(r, "Agent "+added.ID.String(), added); err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusCreated, agentView(added))
}

// publishAgent wakes the relay, which publishes the agent's event, and waits until the dialer has
// stored the agent. If the dialer does not respond, the error is 503 with a message that begins
// with messagePrefix.
func (a *API) publishAgent(r *http.Request, messagePrefix string, changed agents.Agent) error {
	a.wake()
	event, err := changed.Event(changed.UpdatedAt)
	if err != nil {
		return err
	}
	return a.peers.ApplyAgent(r.Context(), messagePrefix, event)
}

// listAgents handles GET /admin/v1/workspaces/{id}/agents.
func (a *API) listAgents(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := pathWorkspace(r)
	if err != nil {
		return err
	}
	p, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	rows, err := a.store.Agents(r.Context(), workspaceID, p)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(p, rows, agentView))
}

// readAgent handles GET /admin/v1/workspaces/{id}/agents/{agent_id}.
func (a *API) readAgent(w http.ResponseWriter, r *http.Request) error {
	workspaceID, id, err := agentPath(r)
	if err != nil {
		return err
	}
	found, err := a.store.Agent(r.Context(), workspaceID, id)
	if err != nil {
		return convertNotFound(err, "agent")
	}
	httpserver.SetETag(w, found.Version)
	return httpserver.WriteJSON(w, http.StatusOK, agentView(found))
}

// changeAgent handles PATCH /admin/v1/workspaces/{id}/agents/{agent_id}. It merges the settings in
// the body into the agent; null sets a setting to its default. It responds when the dialer has
// stored the agent.
func (a *API) changeAgent(w http.ResponseWriter, r *http.Request) error {
	workspaceID, id, err := agentPath(r)
	if err != nil {
		return err
	}
	if _, err := a.store.Agent(r.Context(), workspaceID, id); err != nil {
		return convertNotFound(err, "agent") // an unknown agent gives 404 before the body is checked
	}
	var body map[string]json.RawMessage
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	changed, err := a.change(w, r, func(found *agents.Agent) error { return found.Change(body) })
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, agentView(changed))
}

type deletedBody struct {
	Deleted bool      `json:"deleted"`
	ID      uuid.UUID `json:"id"`
}

// deleteAgent handles DELETE /admin/v1/workspaces/{id}/agents/{agent_id}. Queued requests of the
// agent become blocked with invalid_agent. It responds when the dialer has stored the deletion.
func (a *API) deleteAgent(w http.ResponseWriter, r *http.Request) error {
	changed, err := a.change(w, r, func(found *agents.Agent) error {
		found.Delete(a.now())
		return nil
	})
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, deletedBody{Deleted: true, ID: changed.ID})
}

// change changes an agent, if the header If-Match of the request permits it. It sets the ETag of
// the stored agent. So after a 503 because the dialer did not respond, the client can repeat the
// change.
func (a *API) change(
	w http.ResponseWriter, r *http.Request, change func(*agents.Agent) error,
) (agents.Agent, error) {
	workspaceID, id, err := agentPath(r)
	if err != nil {
		return agents.Agent{}, err
	}
	changed, err := a.store.ChangeAgent(r.Context(), workspaceID, id, a.now(), func(found *agents.Agent) error {
		if err := httpserver.CheckIfMatch(r, found.Version); err != nil {
			return err
		}
		return change(found)
	})
	if err != nil {
		return agents.Agent{}, convertNotFound(err, "agent")
	}
	httpserver.SetETag(w, changed.Version)
	return changed, a.publishAgent(r, "The change", changed)
}

func agentPath(r *http.Request) (workspaceID, id uuid.UUID, err error) {
	if workspaceID, err = pathWorkspace(r); err != nil {
		return uuid.Nil, uuid.Nil, err
	}
	id, err = httpserver.PathID(r, "agent_id", "agent")
	return workspaceID, id, err
}

// pathWorkspace returns the workspace in the path. The error is 404 unless the caller token is for
// the same workspace.
func pathWorkspace(r *http.Request) (uuid.UUID, error) {
	id, err := httpserver.PathID(r, "id", "workspace")
	if err != nil || id != serviceauth.CallerFrom(r.Context()).WorkspaceID {
		return uuid.Nil, apierr.New(http.StatusNotFound, "not_found", "No such workspace.")
	}
	return id, nil
}
