package realtime_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
)

func recordedLine(t *testing.T, server *modeltest.RealtimeServer, settings agent.Settings) *line {
	t.Helper()
	settings.Kind = agent.Realtime
	spec := agent.Spec{Settings: settings, Now: time.Now()}
	spec.Notice, spec.NoticeKnown = settings.NoticeText()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
	s, err := opener(server).Open(ctx, spec)
	cancel()
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return listen(t, server, s)
}

func TestRecordingNotice_IsPartOfTheDisclosure(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		settings agent.Settings
		want     string
	}{
		"after the disclosure": {agent.Settings{Language: "de"}, "Guten Tag, Sie sprechen mit einem KI-Assistenten. " +
			"Dieses Gespräch wird aufgezeichnet. Wenn Sie das nicht möchten, sagen Sie es bitte."},
		"without a disclosure": {agent.Settings{Disclosure: agent.Disclosure{OffReason: "employees"},
			Recording: agent.Recording{Notice: "We tape this."}}, "We tape this."},
	} {
		failed := false
		server := serve(t, modeltest.RealtimeOptions{Reply: func(_, asked string, n int) modeltest.RealtimeReply {
			if n == 1 && name == "without a disclosure" {
				failed = true
				return modeltest.RealtimeReply{Status: "failed"}
			}
			return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day.")}
		}})
		l := recordedLine(t, server, row.settings)
		l.Begin()
		noticed := l.wait(agent.Noticed, 1)
		l.wait(agent.Utterance, 2)
		utterances := l.all(agent.Utterance)
		switch {
		case utterances[0].Text != row.want:
			t.Errorf("%s: utterances[0].Text = %v, want %v", name, utterances[0].Text, row.want)
		case noticed.Item != utterances[0].Item:
			t.Errorf("%s: noticed.Item = %v, want %v", name, noticed.Item, utterances[0].Item)
		case failed != (name == "without a disclosure"):
			t.Errorf("%s: failed = %v, want %v", name, failed, (name == "without a disclosure"))
		}
		for _, e := range l.all(agent.Audio) {
			if e.Keep != (e.Item == noticed.Item) {
				t.Errorf("%s: audio of %s: keep %v", name, e.Item, e.Keep)
			}
		}
		if session := string(server.Received("session.update")[0]); !strings.Contains(session, `"stop_recording"`) {
			t.Errorf("%s: session = %q, want it to contain %q", name, session, `"stop_recording"`)
		} else if !strings.Contains(session, "This call is recorded") {
			t.Errorf(`%s: session = %q, want it to contain "This call is recorded"`, name, session)
		}
		l.checkNoErrors()
	}
}

func TestRecordingNotice_IsAbsentIfTheCallIsNotRecorded(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.RealtimeOptions{})
	l := open(t, server, agent.Settings{})
	l.Begin()
	l.wait(agent.TurnDone, 2)
	if session := string(server.Received("session.update")[0]); len(l.all(agent.Noticed)) > 0 {
		t.Errorf("string: l.all(agent.Noticed) = %v, want none", l.all(agent.Noticed))
	} else if strings.Contains(session, "record") {
		t.Errorf(`string: session = %q, want it without "record"`, session)
	}
}
