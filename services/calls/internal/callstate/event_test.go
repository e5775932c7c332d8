package callstate

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/money"
	"ringfence.dev/proto/openapi"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestEvent_MatchesTheGoldenFiles compares the exact bytes that customers receive.
func TestEvent_MatchesTheGoldenFiles(t *testing.T) {
	t.Parallel()
	events := eventsOfCall(Completed)
	ringing, done := events[1], events[3]
	done.WorkspaceID = uuid.MustParse("0190a000-0000-7000-8000-00000000000a")
	done.ContactID = ptr(uuid.MustParse("0190a000-0000-7000-8000-00000000000c"))
	done.ExternalRef, done.Outcome, done.Disposition = ptr("order-1042"), ptr("interested"), ptr("human")
	done.Summary = []byte(`{"outcome": "interested", "confidence": 0.9}`)
	done.Credits, done.TotalSeconds = ptr(money.Micro(5000)), ptr(int32(8))
	ringing.Sequence, done.Sequence = 1, 3
	for file, c := range map[string]struct {
		call  Call
		event openapi.EventType
	}{"ringing.json": {ringing, openapi.EventTypeCallRinging}, "completed.json": {done, openapi.EventTypeCallCompleted}} {
		message, err := c.call.Event(c.event, start)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err = json.Indent(&got, message.GetPublic().GetBody(), "", "  "); err != nil {
			t.Fatal(err)
		}
		got.WriteByte('\n')
		if *update {
			if err = os.WriteFile("testdata/"+file, got.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s:\n%s\nwant\n%s", file, got.Bytes(), want)
		}
		if message.GetPublic().GetEventId() != EventID(c.call.ID, c.event).String() {
			t.Errorf("%s: event id %s is not the one of call and type", file, message.GetPublic().GetEventId())
		}
	}
}
