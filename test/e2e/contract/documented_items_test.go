package contract

import (
	"slices"
	"strings"
)

func (d *Document) see(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[what]++
}

// Unseen lists documented items that did not occur in any response or delivery. An item is an
// operation with a status and an error code ("createCall 422 recipient_dnd"), a code of responses
// without an operation ("default bad_request"), or a webhook.
func (d *Document) Unseen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var unseen []string
	for _, what := range d.documented() {
		if d.seen[what] == 0 {
			unseen = append(unseen, what)
		}
	}
	return unseen
}

func (d *Document) documented() []string {
	var all []string
	for _, item := range d.spec.Paths.Map() {
		for _, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				name := operation.OperationID + " " + status
				if status == "default" {
					name = status
				}
				for _, media := range response.Value.Content {
					if strings.HasPrefix(status, "2") {
						all = append(all, name)
						continue
					}
					for code := range media.Examples {
						all = append(all, name+" "+code)
					}
				}
			}
		}
	}
	for name := range d.spec.Webhooks {
		all = append(all, "webhook "+name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Operations returns the ids of all operations.
func (d *Document) Operations() []string {
	var all []string
	for _, item := range d.spec.Paths.Map() {
		for _, operation := range item.Operations() {
			all = append(all, operation.OperationID)
		}
	}
	slices.Sort(all)
	return all
}
