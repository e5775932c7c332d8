package pages

import (
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) peopleRoutes() []route {
	return []route{
		{"GET /operator/people", showPeople},
		{"POST /operator/people/invite", inviteOperator},
		{"GET /operator/invitations", showInvitations},
		{"POST /operator/invitations/{invitation}/withdraw", withdrawInvitation},
		{"GET /operator/people/{person}", showPerson},
		{"POST /operator/people/{person}/sign-out", signOutPerson},
		{"POST /operator/people/{person}/recovery", recoverPerson},
		{"POST /operator/people/{person}/remove-operator", removeOperator},
	}
}

const peoplePath = "/console/v1/people"

// newInvitation is the response to a request that creates an invitation. No other response contains
// the token.
type newInvitation struct {
	Token     string            `json:"token"`
	URL       *string           `json:"url"`
	ExpiresAt openapi.Timestamp `json:"expires_at"`
}

// linkData contains the link of an invitation, which the gateway returns only once.
type linkData struct {
	Link      string
	ExpiresAt openapi.Timestamp
	// Back is the page to which the person returns. Lead is the key of the text that introduces the
	// link.
	Back, Lead string
}

// linkOf returns the link of an invitation. Without CONSOLE_URL at the gateway, the address of this
// console is used.
func (v *visit) linkOf(made newInvitation, back, lead string) linkData {
	link := v.server.URL.JoinPath("invitations", made.Token).String()
	if made.URL != nil {
		link = *made.URL
	}
	return linkData{Link: link, ExpiresAt: made.ExpiresAt, Back: back, Lead: lead}
}

func showPeople(v *visit) (view, error) {
	var data struct {
		gateway.Page[gateway.Person]
		Last string
	}
	err := concurrently(read(v, &data.Page, peoplePath, v.listQuery()))
	data.Last = lastID(data.Page, func(p gateway.Person) uuid.UUID { return p.ID })
	return view{template: "people", title: "people.title", nav: "people", data: data}, err
}

func inviteOperator(v *visit) (view, error) {
	made, err := gateway.Post[newInvitation](v.r.Context(), v.Session, operatorInvitations, nil)
	return view{template: "person_link", title: "people.invited", nav: "people",
		data: v.linkOf(made, invitationsPage, "people.invited.lead")}, err
}

const (
	operatorInvitations = "/console/v1/operator-invitations"
	invitationsPage     = "/operator/invitations"
)

// operatorInvitation is an invitation to become an operator. If PersonID is set, its link registers
// a new passkey for this person instead.
type operatorInvitation struct {
	sentInvitation
	PersonID *uuid.UUID `json:"person_id"`
}

// Open reports whether the link is still accepted.
func (i operatorInvitation) Open() bool { return i.AcceptedAt == nil && !i.Expired() }

func showInvitations(v *visit) (view, error) {
	var data struct {
		gateway.Page[operatorInvitation]
		Last string
	}
	err := concurrently(read(v, &data.Page, operatorInvitations, v.listQuery()))
	data.Last = lastID(data.Page, func(i operatorInvitation) uuid.UUID { return i.ID })
	return view{template: "operator_invitations", title: "people.invitations", nav: "people", data: data}, err
}

func withdrawInvitation(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("invitation"))
	if err != nil {
		return view{}, errNotFound
	}
	if !v.giveReason() {
		return view{redirect: invitationsPage, done: "not_confirmed"}, nil
	}
	return view{redirect: invitationsPage, done: "invitation_withdrawn"}, v.remove(operatorInvitations + "/" + id.String())
}

type personData struct {
	gateway.Person
	Memberships []gateway.Membership `json:"memberships"`
}

// IsOperator reports whether the person is an operator.
func (d personData) IsOperator() bool {
	for _, m := range d.Memberships {
		if m.Role == gateway.Operator {
			return true
		}
	}
	return false
}

// personPage returns the address of the page about a person, and the path of that person in the
// API.
func (v *visit) personPage() (page, path string, err error) {
	id, err := uuid.Parse(v.r.PathValue("person"))
	if err != nil {
		return "", "", errNotFound
	}
	return "/operator/people/" + id.String(), peoplePath + "/" + id.String(), nil
}

func showPerson(v *visit) (view, error) {
	_, path, err := v.personPage()
	if err != nil {
		return view{}, err
	}
	data, err := gateway.Get[personData](v.r.Context(), v.Session, path, nil)
	return view{template: "person", title: "people.title", heading: data.Name, nav: "people", data: data}, err
}

func (v *visit) remove(path string) error {
	_, err := gateway.Do[map[string]any](v.r.Context(), v.Session, gateway.Request{Method: http.MethodDelete, Path: path})
	return err
}

func signOutPerson(v *visit) (view, error) {
	page, path, err := v.personPage()
	if err != nil {
		return view{}, err
	}
	return view{redirect: page, done: "person_signed_out"}, v.remove(path + "/sessions")
}

// recoverPerson creates a link with which the person registers a new passkey.
func recoverPerson(v *visit) (view, error) {
	page, path, err := v.personPage()
	if err != nil {
		return view{}, err
	}
	made, err := gateway.Post[newInvitation](v.r.Context(), v.Session, path+"/recovery", nil)
	return view{template: "person_link", title: "people.recovery", nav: "people",
		data: v.linkOf(made, page, "people.recovery.lead")}, err
}

// removeOperator removes the operator role from a person. The user must type the person's name as a
// confirmation.
func removeOperator(v *visit) (view, error) {
	page, path, err := v.personPage()
	if err != nil {
		return view{}, err
	}
	found, err := gateway.Get[personData](v.r.Context(), v.Session, path, nil)
	if err != nil {
		return view{}, err
	}
	if !v.confirmed(found.Name) {
		return view{redirect: page, done: "not_confirmed"}, nil
	}
	return view{redirect: page, done: "operator_removed"}, v.remove(path + "/operator")
}
