package pages

import (
	"net/http"
	"net/url"

	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) homeRoutes() []route {
	return []route{
		{"GET /{$}", showHome},
		{"GET /workspaces", showWorkspaces},
		{"POST /w/{workspace}/reason", setReason},
	}
}

type workspacesData struct {
	Items []gateway.Workspace
	More  string
}

// showHome redirects to the workspace if the person has exactly one, and otherwise to the list of
// workspaces.
func showHome(v *visit) (view, error) {
	data, err := v.workspaces()
	if err != nil {
		return view{}, err
	}
	if len(data.Items) == 1 && data.More == "" {
		return view{redirect: "/w/" + data.Items[0].ID.String()}, nil
	}
	return view{redirect: "/workspaces"}, nil
}

func showWorkspaces(v *visit) (view, error) {
	data, err := v.workspaces()
	return view{template: "workspaces", title: "workspaces.title", data: data}, err
}

// workspaces returns the workspaces of a person. Operators see all workspaces.
func (v *visit) workspaces() (data workspacesData, err error) {
	if v.me.Operator {
		query := url.Values{"limit": {"50"}}
		if after := v.query("starting_after"); after != "" {
			query.Set("starting_after", after)
		}
		page, err := gateway.Get[gateway.Page[gateway.Workspace]](v.r.Context(), v.Session, "/admin/v1/workspaces", query)
		data.Items = page.Data
		if page.HasMore {
			data.More = page.Data[len(page.Data)-1].ID.String()
		}
		return data, err
	}
	for _, m := range v.me.Memberships {
		if m.WorkspaceID != nil {
			data.Items = append(data.Items, gateway.Workspace{ID: *m.WorkspaceID, Name: textOf(m.WorkspaceName)})
		}
	}
	return data, nil
}

// setReason stores an operator's reason for reading the transcripts of a workspace.
func setReason(v *visit) (view, error) {
	if !v.giveReason() {
		return view{}, &gateway.Error{Status: http.StatusUnprocessableEntity, Field: "Ringfence-Reason"}
	}
	v.server.cookies.setReason(v.w, v.CurrentToken(), v.workspace, v.Reason)
	return view{redirect: localPath(v.form("next"))}, nil
}
