package httpapi

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/store"
)

type memberView struct {
	personView
	Role       people.Role `json:"role"`
	FromGroups bool        `json:"from_groups"`
	// ETag is also in the header of the response about one member. A list has it for each member.
	ETag string `json:"etag"`
}

func viewMember(m people.Member) memberView {
	return memberView{personView: viewPerson(m.Person), Role: m.Role, FromGroups: m.FromGroups,
		ETag: memberETag(m.Role, m.FromGroups)}
}

// memberETag returns the ETag of a member. It contains what PATCH can change, so a role that was
// changed and changed back has the same ETag.
func memberETag(role people.Role, fromGroups bool) string {
	if fromGroups {
		return `"` + string(role) + `-from-groups"`
	}
	return `"` + string(role) + `"`
}

func (d directory) listMembers(w http.ResponseWriter, r *http.Request) error {
	request, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	found, err := d.store.Members(r.Context(), visitorOf(r).workspaceID, request)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(request, found, viewMember))
}

func (d directory) readMember(w http.ResponseWriter, r *http.Request) error {
	id, err := personIDOf(r)
	if err != nil {
		return err
	}
	return d.writeMember(w, r, id)
}

func (d directory) writeMember(w http.ResponseWriter, r *http.Request, personID uuid.UUID) error {
	found, err := d.store.Member(r.Context(), visitorOf(r).workspaceID, personID)
	if err != nil {
		return memberError(err)
	}
	shown := viewMember(found)
	w.Header().Set("ETag", shown.ETag)
	return httpserver.WriteJSON(w, http.StatusOK, shown)
}

// changeMember handles PATCH /console/v1/members/{person_id}. The tokens of the person's sessions
// are replaced when the role changes.
func (d directory) changeMember(w http.ResponseWriter, r *http.Request) error {
	id, err := personIDOf(r)
	if err != nil {
		return err
	}
	var body struct {
		Role people.Role `json:"role"`
	}
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	if !body.Role.IsWorkspaceRole() {
		return apierr.Validation("role", "must be owner, developer, compliance or viewer.")
	}
	check := func(role people.Role, fromGroups bool) error {
		return httpserver.CheckIfMatchTag(r, memberETag(role, fromGroups))
	}
	if err := d.store.SetRole(r.Context(), id, visitorOf(r).workspaceID, body.Role, check); err != nil {
		return memberError(err)
	}
	return d.writeMember(w, r, id)
}

func (d directory) removeMember(w http.ResponseWriter, r *http.Request) error {
	id, err := personIDOf(r)
	if err != nil {
		return err
	}
	workspaceID := visitorOf(r).workspaceID
	if err := d.store.RemoveMember(r.Context(), id, &workspaceID); err != nil {
		return memberError(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d directory) listPeople(w http.ResponseWriter, r *http.Request) error {
	request, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	found, err := d.store.People(r.Context(), request)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(request, found, viewPerson))
}

func (d directory) readPerson(w http.ResponseWriter, r *http.Request) error {
	id, err := personIDOf(r)
	if err != nil {
		return err
	}
	person, err := d.store.Person(r.Context(), id)
	if err != nil {
		return memberError(err)
	}
	roles, err := d.memberships(r, id)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		personView
		Memberships []membershipView `json:"memberships"`
	}{viewPerson(person), roles})
}

func (d directory) revokePersonSessions(w http.ResponseWriter, r *http.Request) error {
	id, err := personIDOf(r)
	if err != nil {
		return err
	}
	if _, err := d.store.Person(r.Context(), id); err != nil {
		return memberError(err)
	}
	if err := d.store.RevokeSessions(r.Context(), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d directory) removeOperator(w http.ResponseWriter, r *http.Request) error {
	id, err := personIDOf(r)
	if err != nil {
		return err
	}
	if err := d.store.RemoveMember(r.Context(), id, nil); err != nil {
		return memberError(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func personIDOf(r *http.Request) (uuid.UUID, error) {
	id, err := httpserver.PathID(r, "person_id", "person")
	if err != nil {
		return id, missing("person")
	}
	return id, nil
}

func memberError(err error) error {
	switch {
	case errors.Is(err, pg.ErrNotFound):
		return missing("person")
	case errors.Is(err, store.ErrLastOwner):
		return apierr.Conflict("last_owner",
			"The last owner of a workspace and the last operator cannot be removed. Give another person the role first.")
	}
	return err
}
