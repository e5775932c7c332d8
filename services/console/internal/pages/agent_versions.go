package pages

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

// agentVersion is an entry of the audit log that created or changed an agent.
type agentVersion struct {
	ID uuid.UUID
	At openapi.Timestamp
	By string
	// New is true for the entry that created the agent.
	New     bool
	Changes []settingChange
}

// settingChange contains the text lines that a change removed from one setting and added to it.
type settingChange struct {
	Name           string
	Removed, Added []string
}

// readVersions reads the newest changes of an agent. If they cannot be read, the page is shown
// without them.
func (v *visit) readVersions(data *agentFormData, id uuid.UUID) func() error {
	return func() error {
		found, err := gateway.Get[openapi.AuditEntryPage](v.r.Context(), v.Session, "/v1/audit",
			url.Values{"object_type": {"agent"}, "object_id": {id.String()}, "limit": {"20"}})
		if err != nil {
			return nil //nolint:nilerr // the page is shown without versions
		}
		data.MoreVersions = found.HasMore
		for _, entry := range found.Data {
			version := agentVersion{ID: entry.ID, At: entry.At, By: entry.ActorName, New: entry.Before == nil,
				Changes: changesBetween(entry.Before, entry.After)}
			if version.New || len(version.Changes) > 0 {
				data.Versions = append(data.Versions, version)
			}
		}
		return nil
	}
}

// changesBetween returns the settings that differ between two states of an agent. If one of the
// states is unknown, it returns nil.
func changesBetween(before, after *map[string]any) (changes []settingChange) {
	if before == nil || after == nil {
		return nil
	}
	names := maps.Clone(*before)
	maps.Copy(names, *after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if slices.Contains([]string{"id", "created_at", "updated_at", "retiring_models"}, name) {
			continue
		}
		removed, added := differentLines(settingLines((*before)[name]), settingLines((*after)[name]))
		if len(removed)+len(added) > 0 {
			changes = append(changes, settingChange{Name: name, Removed: removed, Added: added})
		}
	}
	return changes
}

// settingLines returns a setting as lines. A setting that is not a text is written as JSON. For
// null it returns nil.
func settingLines(value any) []string {
	switch text, isText := value.(string); {
	case value == nil:
		return nil
	case isText:
		return strings.Split(text, "\n")
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return nil // cannot happen: the value was decoded from JSON
	}
	return strings.Split(strings.TrimSpace(text.String()), "\n")
}

// differentLines removes the first lines and the last lines that both texts have in common.
func differentLines(before, after []string) (removed, added []string) {
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	return before, after
}
