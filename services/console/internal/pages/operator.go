package pages

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) operatorRoutes() []route {
	return []route{
		{"GET /operator/overview", showSystem},
		{"GET /operator/queue", showQueue},
		{"GET /operator/services", showServices},
		{"GET /operator/audit", showOperatorAudit},
	}
}

var errForbidden = &gateway.Error{Status: http.StatusForbidden, Code: "forbidden"}

// fault describes why a form was refused, so that the person can correct it. Field is the API's
// name of the wrong field, or empty.
type fault struct {
	Status         int
	Field, Message string
}

// fieldName matches the name of a field at the start of a message.
var fieldName = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)*`)

// faultOf converts an error to the fault of a form. It returns nil if err is nil, or if the gateway
// did not refuse the form. The message of a validation error begins with the name of the field.
func faultOf(err error) *fault {
	refused := gateway.AsError(err)
	if refused == nil || refused.Field == "Ringfence-Reason" ||
		refused.Status != http.StatusUnprocessableEntity && refused.Status != http.StatusConflict {
		return nil
	}
	found := &fault{Status: refused.Status, Field: refused.Field, Message: refused.Message}
	if found.Field == "" && refused.Status == http.StatusUnprocessableEntity {
		found.Field = fieldName.FindString(refused.Message)
	}
	return found
}

// IsAbout reports whether the refusal is about the field, or about a part of it.
func (f *fault) IsAbout(field string) bool {
	return f.Field == field || strings.HasPrefix(f.Field, field+".") || strings.HasSuffix(f.Field, "."+field)
}

// At returns the message if the refusal is about the field. For a nil fault it returns "".
func (f *fault) At(field string) string {
	if f == nil || !f.IsAbout(field) {
		return ""
	}
	return f.Message
}

// Elsewhere returns the message of the fault. If the fault is about one of the fields, it returns
// "".
func (f *fault) Elsewhere(fields ...string) string {
	if f == nil || slices.ContainsFunc(fields, f.IsAbout) {
		return ""
	}
	return f.Message
}

// lastID returns the id of the last item of a page, or "" if there are no more pages.
func lastID[T any](page gateway.Page[T], id func(T) uuid.UUID) string {
	if !page.HasMore || len(page.Data) == 0 {
		return ""
	}
	return id(page.Data[len(page.Data)-1]).String()
}

// dialerState is the response of GET /admin/v1/dialer.
type dialerState struct {
	Replicas []struct {
		Replica    string            `json:"replica"`
		ReportedAt openapi.Timestamp `json:"reported_at"`
		// SIP is nil if the carrier is simulated.
		SIP *struct {
			UDP        string `json:"udp"`
			TCP        string `json:"tcp"`
			TLS        string `json:"tls"`
			Advertised string `json:"advertised"`
			RTP        string `json:"rtp"`
		} `json:"sip"`
	} `json:"replicas"`
	AgentCircuits []struct {
		Replica     string             `json:"replica"`
		Kind        string             `json:"kind"`
		WorkspaceID *uuid.UUID         `json:"workspace_id"`
		OpenUntil   *openapi.Timestamp `json:"open_until"`
	} `json:"agent_circuits"`
	Queue struct {
		Due              int64   `json:"due"`
		Paused           int64   `json:"paused"`
		Scheduled        int64   `json:"scheduled"`
		OldestDueSeconds float64 `json:"oldest_due_seconds"`
		LiveOutbound     int64   `json:"live_outbound"`
		LiveInbound      int64   `json:"live_inbound"`
	} `json:"queue"`
	Pauses []gateway.Pause `json:"pauses"`
}

// operatorAuditEntry is an entry of GET /admin/v1/audit.
type operatorAuditEntry struct {
	ID          uuid.UUID         `json:"id"`
	Operator    string            `json:"operator"`
	WorkspaceID *uuid.UUID        `json:"workspace_id"`
	RequestID   uuid.UUID         `json:"request_id"`
	Method      string            `json:"method"`
	Route       string            `json:"route"`
	Path        string            `json:"path"`
	Status      *int32            `json:"status"`
	Outcome     string            `json:"outcome"`
	Before      json.RawMessage   `json:"before"`
	After       json.RawMessage   `json:"after"`
	OccurredAt  openapi.Timestamp `json:"occurred_at"`
}

// HasStates reports whether the entry contains the state before or after the change.
func (e operatorAuditEntry) HasStates() bool { return isObject(e.Before) || isObject(e.After) }

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// serviceStates is the response of GET /admin/v1/services.
type serviceStates struct {
	Version  string         `json:"version"`
	Services []serviceState `json:"services"`
}

type serviceState struct {
	Name     string   `json:"name"`
	Ready    bool     `json:"ready"`
	Versions []string `json:"versions"`
}

// State returns ready or not_ready.
func (s serviceState) State() string {
	if s.Ready {
		return "ready"
	}
	return "not_ready"
}

// Mixed reports whether the replicas of a service have different versions, as during an upgrade.
func (s serviceState) Mixed() bool { return len(s.Versions) > 1 }

type systemData struct {
	Services   serviceStates
	Dialer     dialerState
	Trunks     gateway.Page[trunk]
	Workspaces gateway.Page[gateway.Workspace]
	Audit      gateway.Page[operatorAuditEntry]
}

const (
	// The queue needs attention if its oldest due request is older than lateAfter.
	lateAfter = time.Minute
	// A trunk needs attention if its rate of failed calls reaches trunkErrorRate.
	trunkErrorRate = 0.2
)

func showSystem(v *visit) (view, error) {
	var data systemData
	err := concurrently(
		read(v, &data.Services, "/admin/v1/services", nil),
		readOptional(v, &data.Dialer, "/admin/v1/dialer", nil),
		readOptional(v, &data.Trunks, "/admin/v1/trunks", url.Values{"limit": {"100"}}),
		read(v, &data.Workspaces, "/admin/v1/workspaces", url.Values{"limit": {"8"}}),
		read(v, &data.Audit, "/admin/v1/audit", url.Values{"limit": {"6"}}),
	)
	return view{template: "system", title: "system.title", nav: "system", data: data}, err
}

// Unready returns the services that are not ready, or whose replicas have different versions.
func (d systemData) Unready() (found []serviceState) {
	for _, s := range d.Services.Services {
		if !s.Ready || s.Mixed() {
			found = append(found, s)
		}
	}
	return found
}

// BadTrunks returns the trunks that are down, or on which many calls fail.
func (d systemData) BadTrunks() (found []trunk) {
	for _, t := range d.Trunks.Data {
		if t.NeedsAttention() {
			found = append(found, t)
		}
	}
	return found
}

// Late reports whether requests wait too long for their dial.
func (d systemData) Late() bool {
	return d.Dialer.Queue.OldestDueSeconds > lateAfter.Seconds()
}

// Quiet reports whether nothing needs attention.
func (d systemData) Quiet() bool {
	return len(d.Unready()) == 0 && len(d.BadTrunks()) == 0 && !d.Late() && len(d.Dialer.Pauses) == 0 &&
		len(d.Dialer.AgentCircuits) == 0
}

func showQueue(v *visit) (view, error) {
	var data struct {
		dialerState
		Trunks gateway.Page[trunk]
	}
	err := concurrently(
		read(v, &data.dialerState, "/admin/v1/dialer", nil),
		readOptional(v, &data.Trunks, "/admin/v1/trunks", url.Values{"limit": {"100"}}),
	)
	return view{template: "queue", title: "queue.title", nav: "queue", data: data}, err
}

func showServices(v *visit) (view, error) {
	var data serviceStates
	err := concurrently(read(v, &data, "/admin/v1/services", nil))
	return view{template: "services", title: "services.title", nav: "services", data: data}, err
}

func showOperatorAudit(v *visit) (view, error) {
	var data struct {
		gateway.Page[operatorAuditEntry]
		Last     string
		Filtered bool
		Fault    *fault
	}
	query := v.listQuery("workspace_id")
	data.Filtered = query.Has("workspace_id")
	err := concurrently(read(v, &data.Page, "/admin/v1/audit", query))
	result := view{template: "operator_audit", title: "opaudit.title", nav: "opaudit"}
	if data.Fault = faultOf(err); data.Fault != nil {
		result.status, err = data.Fault.Status, nil
	}
	data.Last = lastID(data.Page, func(e operatorAuditEntry) uuid.UUID { return e.ID })
	result.data = data
	return result, err
}
