package pages

import (
	"encoding/json"
	"net/http"
	"regexp"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

var errForbidden = &gateway.Error{Status: http.StatusForbidden, Code: "forbidden"}

// fault is a refusal of a form that the person can correct. Field is the name of the field in the
// API, or empty.
type fault struct {
	Status         int
	Field, Message string
}

// fieldName matches the name of a field at the start of a message.
var fieldName = regexp.MustCompile(`^[a-z0-9_]+`)

// faultOf returns the refusal of a form, or nil if err is nil or another error. The message of a
// validation error begins with the name of the field.
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

// At returns the message if the refusal is about the field. A nil fault has none.
func (f *fault) At(field string) string {
	if f == nil || f.Field != field {
		return ""
	}
	return f.Message
}

// Elsewhere returns the message if the refusal is about none of the fields.
func (f *fault) Elsewhere(fields ...string) string {
	if f == nil {
		return ""
	}
	for _, field := range fields {
		if f.Field == field {
			return ""
		}
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
