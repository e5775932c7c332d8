package pages

import (
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

const (
	membersPath     = "/console/v1/members"
	invitationsPath = "/console/v1/invitations"
)

func (s *Server) memberRoutes() []route {
	return []route{
		{"GET /w/{workspace}/members", showMembers},
		{"POST /w/{workspace}/members/{person}/role", changeRole},
		{"POST /w/{workspace}/members/{person}/remove", removeMember},
		{"POST /w/{workspace}/members/invitations", invite},
		{"POST /w/{workspace}/members/invitations/{invitation}/delete", deleteInvitation},
	}
}

// member is a person with a role in the workspace.
type member struct {
	gateway.Person
	Role       string `json:"role"`
	FromGroups bool   `json:"from_groups"`
	ETag       string `json:"etag"`
}

// sentInvitation is an invitation to the workspace. Token and URL are set only in the response to
// the request that creates the invitation.
type sentInvitation struct {
	ID         uuid.UUID          `json:"id"`
	Role       string             `json:"role"`
	InvitedBy  string             `json:"invited_by"`
	CreatedAt  openapi.Timestamp  `json:"created_at"`
	ExpiresAt  openapi.Timestamp  `json:"expires_at"`
	AcceptedAt *openapi.Timestamp `json:"accepted_at"`
	Token      string             `json:"token"`
	URL        *string            `json:"url"`
}

// Expired reports whether the link is no longer accepted.
func (i sentInvitation) Expired() bool { return !time.Now().Before(i.ExpiresAt.Time) }

type membersData struct {
	gateway.Page[member]
	Roles   []string
	Last    string           // the id of the last member, if there are more
	Pending []sentInvitation // the invitations that are not accepted yet
}

// workspaceRoles are the roles of members, in the order from most to fewest permissions.
var workspaceRoles = []string{gateway.Owner, gateway.Developer, gateway.Compliance, gateway.Viewer}

func showMembers(v *visit) (view, error) {
	data := membersData{Roles: workspaceRoles}
	var invitations gateway.Page[sentInvitation]
	reads := []func() error{read(v, &data.Page, membersPath, v.listQuery())}
	if v.can("own") {
		reads = append(reads, read(v, &invitations, invitationsPath, url.Values{"limit": {"100"}}))
	}
	err := concurrently(reads...)
	if data.HasMore {
		data.Last = data.Data[len(data.Data)-1].ID.String()
	}
	for _, sent := range invitations.Data {
		if sent.AcceptedAt == nil {
			data.Pending = append(data.Pending, sent)
		}
	}
	return view{template: "members", title: "members.title", nav: "members", data: data}, err
}

// changeRole gives a member another role, unless another person changed the role after the page was
// shown.
func changeRole(v *visit) (view, error) {
	path, err := v.pathOf(membersPath, "person")
	if err != nil {
		return view{}, err
	}
	err = v.patchVersion(path, v.form("version"), map[string]string{"role": v.form("role")})
	if gateway.Is(err, "precondition_failed") {
		return view{redirect: v.path("members"), done: "role_changed_before"}, nil
	}
	return view{redirect: v.path("members"), done: "role_changed"}, err
}

// removeMember removes a person from the workspace. People who remove themselves are redirected to
// the list of workspaces, because they lose access to this page.
func removeMember(v *visit) (view, error) {
	path, err := v.pathOf(membersPath, "person")
	if err != nil {
		return view{}, err
	}
	next := v.path("members")
	if !v.giveReason() {
		return view{redirect: next, done: "not_confirmed"}, nil
	}
	if v.r.PathValue("person") == v.me.Person.ID.String() && v.role != gateway.Operator {
		next = "/workspaces"
	}
	_, err = gateway.Do[map[string]any](v.r.Context(), v.Session, gateway.Request{Method: http.MethodDelete, Path: path})
	return view{redirect: next, done: "member_removed"}, err
}

// invite creates an invitation and shows its link, which the gateway returns only once.
func invite(v *visit) (view, error) {
	made, err := gateway.Post[sentInvitation](v.r.Context(), v.Session, invitationsPath,
		map[string]string{"role": v.form("role")})
	if err == nil && made.URL == nil { // CONSOLE_URL is not set at the gateway
		link := v.server.URL.JoinPath("invitations", made.Token).String()
		made.URL = &link
	}
	return view{template: "member_invited", title: "members.invited", nav: "members", data: made}, err
}

func deleteInvitation(v *visit) (view, error) {
	path, err := v.pathOf(invitationsPath, "invitation")
	if err != nil {
		return view{}, err
	}
	_, err = gateway.Do[map[string]any](v.r.Context(), v.Session, gateway.Request{Method: http.MethodDelete, Path: path})
	return view{redirect: v.path("members"), done: "invitation_deleted"}, err
}
