package pages

import (
	"net/http"
	"net/url"
	"strings"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) auditRoutes() []route {
	return []route{{"GET /w/{workspace}/audit", showAudit}}
}

// objectTypes are the types of objects in the audit log of a workspace.
var objectTypes = []string{
	"agent", "agent_key", "api_key", "call", "call_request", "consent", "contact", "dialing", "event_stream", "invitation",
	"member", "number", "opt_out", "opt_out_import", "rates", "recording", "transcript", "wallet", "wallet_transaction",
	"webhook_delivery", "webhook_subscription", "workspace",
}

type auditData struct {
	openapi.AuditEntryPage
	Types    []string
	Filtered bool
	Last     string // the id of the last entry, if there are more
	Error    *gateway.Error
}

func showAudit(v *visit) (view, error) {
	query := v.listQuery("object_type", "object_id", "actor_id", "created_after", "created_before")
	if id := query.Get("object_id"); strings.HasPrefix(id, "+") {
		query.Set("object_id", phoneOf(id))
	}
	data := auditData{Types: objectTypes, Filtered: len(query) > 1}
	err := concurrently(read(v, &data.AuditEntryPage, "/v1/audit", query))
	result := view{template: "audit", title: "audit.title", nav: "audit"}
	if data.Error = fieldError(err); data.Error != nil {
		result.status, err = http.StatusUnprocessableEntity, nil
	}
	if data.HasMore {
		data.Last = data.Data[len(data.Data)-1].ID.String()
	}
	result.data = data
	return result, err
}

// ObjectPath returns the address of the page about the object of an audit log entry, or "" if the
// object has no page.
func (p *pageData) ObjectPath(entry openapi.AuditEntry) string {
	pages := map[string][]any{
		"call": {"calls"}, "transcript": {"calls"}, "recording": {"calls"}, "call_request": {"call-requests"},
		"contact": {"contacts"}, "webhook_subscription": {"webhooks"}, "api_key": {"integrations", "api-keys"},
		"opt_out_import": {"opt-outs", "imports"}, "member": {"members"}, "invitation": {"members"}, "wallet": {"wallet"},
	}
	parts, ok := pages[entry.ObjectType]
	switch {
	case entry.ObjectType == "opt_out" || strings.HasPrefix(entry.ObjectID, "+"):
		return p.Path("why") + "?phone=" + url.QueryEscape(entry.ObjectID)
	case !ok || entry.ObjectID == "":
		return ""
	case entry.ObjectType == "api_key", entry.ObjectType == "member", entry.ObjectType == "invitation",
		entry.ObjectType == "wallet":
		return p.Path(parts...) // the address of the list, because a single object of these types has no page
	}
	return p.Path(append(parts, entry.ObjectID)...)
}
