package pages

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/services/console/internal/gateway"
)

// setVersions makes the gateway return three audit entries of the agent: a change, a change without
// a difference, and the creation.
func setVersions(s site) {
	setAgent(s)
	before := map[string]any{"id": agentID, "name": "Ada", "updated_at": "1", "instructions": "Greet.\nAsk.\nEnd.",
		"recording": map[string]any{"off": true}}
	after := map[string]any{"id": agentID, "name": "Ada", "updated_at": "2",
		"instructions": "Greet.\n" + hostile + " +14155550199\nEnd.", "recording": nil, "max_call_seconds": 60}
	entry := func(id string, before, after any) map[string]any {
		return map[string]any{"id": id, "at": updatedAt, "actor_name": hostile, "actor_type": "user",
			"action": "agent.update", "object_type": "agent", "object_id": agentID, "before": before, "after": after}
	}
	s.set("GET /v1/audit", map[string]any{"has_more": true, "data": []any{
		entry("01a218cb-00ad-7433-a772-fa8615bd3f01", before, after),
		entry("01a218cb-00ad-7433-a772-fa8615bd3f02", before, before),
		entry("01a218cb-00ad-7433-a772-fa8615bd3f03", nil, before)}})
}

func TestAgentVersions_ShowRemovedAndAddedLines(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Developer)
	setVersions(s)
	w := s.get(agentPage)
	body := w.Body.String()
	for _, want := range []string{"<b>instructions, max_call_seconds, recording</b>", "<del>Ask.</del>",
		"<ins>60</ins>", "<del>  \"off\": true</del>", "<b>Created</b>",
		"/audit?object_type=agent&object_id=" + agentID} {
		wantBody(t, w, want)
	}
	for name, text := range map[string]string{"a line that both have": "<del>Greet.", "a script": "<script>alert",
		"a change without a difference": "3f02"} {
		if strings.Contains(body, text) {
			t.Errorf("the page contains %s: %s", name, text)
		}
	}
	if got := s.sent("/v1/audit")[0].URL.Query().Get("object_id"); got != agentID {
		t.Errorf("object_id = %q, want %q", got, agentID)
	}
}

// Viewers may not read the audit log, and for other roles it can be unavailable.
func TestAgent_PageIsShownWithoutTheAuditLog(t *testing.T) {
	t.Parallel()
	viewer := newSite(t, gateway.Viewer)
	setVersions(viewer)
	if strings.Contains(viewer.get(agentPage).Body.String(), `id="versions"`) {
		t.Error("the page of a viewer has versions")
	}
	if sent := viewer.sent("/v1/audit"); len(sent) != 0 {
		t.Errorf("requests of a viewer for the audit log = %d, want 0", len(sent))
	}
	s := newSite(t, gateway.Developer)
	setVersions(s)
	s.set("GET /v1/audit", refusal{status: 503, code: "unavailable"})
	wantStatus(t, s.get(agentPage), 200)
}

func TestDifferentLines_LeavesOutEqualLinesAtBothEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ before, after, removed, added string }{
		"equal":                 {"a b", "a b", "", ""},
		"a line is added":       {"a c", "a b c", "", "b"},
		"a line is removed":     {"a b c", "a c", "b", ""},
		"a line is repeated":    {"a a", "a a a", "", "a"},
		"all lines are new":     {"", "a b", "", "a b"},
		"lines at both ends":    {"a b c", "x b y", "a b c", "x b y"},
		"the last line differs": {"a b", "a c", "b", "c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			removed, added := differentLines(strings.Fields(tt.before), strings.Fields(tt.after))
			got, want := [2]string{strings.Join(removed, " "), strings.Join(added, " ")}, [2]string{tt.removed, tt.added}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("lines differ (-want +got):\n%s", diff)
			}
		})
	}
}
