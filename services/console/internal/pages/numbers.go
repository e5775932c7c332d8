package pages

import (
	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) numberRoutes() []route {
	return []route{
		{"GET /w/{workspace}/numbers", showNumbers},
		{"POST /w/{workspace}/numbers", addNumber},
		{"POST /w/{workspace}/numbers/{number}/delete", removeNumber},
	}
}

// ownNumber is a phone number of the workspace.
type ownNumber struct {
	ID        uuid.UUID         `json:"id"`
	Phone     string            `json:"phone_e164"`
	AgentID   uuid.UUID         `json:"agent_id"`
	CreatedAt openapi.Timestamp `json:"created_at"`
}

type numbersData struct {
	gateway.Page[ownNumber]
	Last   string
	Agents agentNames
	// Phone and AgentID are the values of the form.
	Phone, AgentID string
	Fault          *fault
}

func showNumbers(v *visit) (view, error) { return v.showNumbers(nil) }

func (v *visit) showNumbers(refused *fault) (view, error) {
	data := numbersData{Phone: v.form("phone_e164"), AgentID: v.form("agent_id"), Fault: refused}
	var agents gateway.Page[gateway.Agent]
	err := concurrently(read(v, &data.Page, v.admin("/numbers"), v.listQuery()), v.readAgents(&agents))
	data.Agents = agents.Data
	data.Last = lastID(data.Page, func(n ownNumber) uuid.UUID { return n.ID })
	result := view{template: "numbers", title: "numbers.title", nav: "numbers", data: data}
	if refused != nil {
		result.status = refused.Status
	}
	return result, err
}

func addNumber(v *visit) (view, error) {
	_, err := gateway.Post[ownNumber](v.r.Context(), v.Session, v.admin("/numbers"),
		map[string]string{"phone_e164": phoneOf(v.form("phone_e164")), "agent_id": v.form("agent_id")})
	if refused := faultOf(err); refused != nil {
		return v.showNumbers(refused)
	}
	return view{redirect: v.path("numbers"), done: "number_added"}, err
}

// removeNumber removes a number. The person must type the number as a confirmation.
func removeNumber(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("number"))
	if err != nil {
		return view{}, errNotFound
	}
	path := v.admin("/numbers/%s", id)
	found, err := gateway.Get[ownNumber](v.r.Context(), v.Session, path, nil)
	if err != nil {
		return view{}, err
	}
	if phoneOf(v.form("confirmation")) != found.Phone || !v.giveReason() {
		return view{redirect: v.path("numbers"), done: "not_confirmed"}, nil
	}
	return view{redirect: v.path("numbers"), done: "number_removed"}, v.remove(path)
}
