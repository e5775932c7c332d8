package journal_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/store/journal"
)

// TestNews_CarryThePlayout checks that the times of a turn and the record of the disclosure reach the
// reader of the news.
func TestNews_CarryThePlayout(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	j := journal.New(pool, pool, uuid.New(), lease)
	id := dial(t, j)
	answered := *instant()
	cut := answered.Add(2 * time.Second)
	wants(t, "answered", true)(j.Answer(t.Context(), id, answered))
	turns := []agent.Turn{
		{Role: agent.RoleAgent, Text: "Hello –", At: answered, EndedAt: cut},
		{Role: agent.RolePerson, Text: "Bye.", At: cut},
	}
	if err := j.Say(t.Context(), id, turns); err != nil {
		t.Fatalf("Say: %v", err)
	}
	record := &agent.DisclosureRecord{Text: "Hello, this is an AI.", StartedAt: &answered, CutAt: &cut}
	wants(t, "ended", true)(j.End(t.Context(), id, journal.End{At: cut, Cause: call.NormalClearing, Disclosure: record}))

	_, news, err := j.News(t.Context(), 0)
	if err != nil {
		t.Fatalf("News: %v", err)
	}
	var got []agent.Turn
	var disclosure *agent.DisclosureRecord
	for _, one := range news {
		switch one.Kind {
		case journal.Said:
			got = append(got, agent.Turn{Role: one.Role, Text: one.Text, At: one.At, EndedAt: one.SpokenUntil})
		case journal.Ended:
			disclosure = one.Call.Disclosure
		}
	}
	if diff := cmp.Diff(turns, got); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(record, disclosure); diff != "" {
		t.Errorf("disclosure (-want +got):\n%s", diff)
	}
}
