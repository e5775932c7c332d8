package contract

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// statusOfEvent maps each event type to the statuses that its object can have in the event.
var statusOfEvent = map[string][]string{
	"call.ringing": {"ringing"}, "call.answered": {"in_progress"}, "call.completed": {"completed"}, "call.no_answer": {"no_answer"},
	"call.busy": {"busy"}, "call.failed": {"failed", "canceled"}, "call.analyzed": {"completed"},
	"call_request.blocked": {"blocked"}, "call_request.failed": {"failed"}, "call_request.canceled": {"canceled"},
	"webhook_subscription.failing": {"active"}, "webhook_subscription.failed": {"failed"},
}

// Delivery validates the type, headers and body of a delivery. It does not verify the signature,
// because the receiver does.
func (d *Document) Delivery(header http.Header, body []byte) error {
	value, err := decode(body)
	if err != nil {
		return err
	}
	envelope, _ := value.(map[string]any)
	name, _ := envelope["type"].(string)
	item := d.spec.Webhooks[name]
	if item == nil {
		return fmt.Errorf("a delivery of type %q is not documented", name)
	}
	var wrong []error
	for _, parameter := range item.Post.Parameters {
		p := parameter.Value
		wrong = append(wrong, checkHeader(p.Name, &openapi3.Header{Parameter: *p}, header))
	}
	if header.Get("X-Service-Event-Id") != envelope["id"] {
		wrong = append(wrong, fmt.Errorf("X-Service-Event-Id %q is not the event's id %v", header.Get("X-Service-Event-Id"), envelope["id"]))
	}
	if kind := header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		wrong = append(wrong, fmt.Errorf("content type %q", kind))
	}
	if header.Get("User-Agent") == "" {
		wrong = append(wrong, errors.New("header User-Agent is missing"))
	}
	schema := item.Post.RequestBody.Value.Content["application/json"].Schema.Value
	if err := schema.VisitJSON(value, openapi3.MultiErrors(),
		openapi3.WithStringFormatValidators(responseFormats())); err != nil {
		wrong = append(wrong, err)
	} else if data, ok := envelope["data"].(map[string]any); ok {
		wrong = append(wrong, statusFits(name, data["status"]))
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("delivery %s %.600s is not as documented: %w", name, body, err)
	}
	d.see("webhook " + name)
	return nil
}

func statusFits(name string, status any) error {
	allowed := statusOfEvent[name]
	for _, one := range allowed {
		if one == status {
			return nil
		}
	}
	if len(allowed) > 0 {
		return fmt.Errorf("%s of an object that is %v", name, status)
	}
	return nil
}
