package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/recordings"
)

func (r *rig) setFeatures(version int64, transcripts, recordings bool) {
	r.t.Helper()
	r.mustDeliver(kafka.Workspaces, r.workspace.String(), &eventv1.WorkspaceEvent{
		WorkspaceId: r.workspace.String(), Version: version, OccurredAt: timestamppb.Now(),
		Event: &eventv1.WorkspaceEvent_Workspace{Workspace: &eventv1.Workspace{Currency: "USD", TranscriptsEnabled: transcripts, RecordingsEnabled: recordings}},
	})
}

func localLinks(t *testing.T) (*recordings.Links, *recordingstore.Links) {
	t.Helper()
	storage := recordingstore.Storage{LinkKeys: []string{base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))}, LinkURL: "https://api.example.com"}
	made, err := recordings.NewLinks(storage)
	if err != nil {
		t.Fatal(err)
	}
	known, err := recordingstore.NewLinks(storage)
	if err != nil {
		t.Fatal(err)
	}
	return made, known
}

func (a *account) transcribed() *eventv1.DialEvent {
	ev := a.analysed()
	ev.GetAnalysed().TranscriptJson = []byte(`{"turns":[{"role":"agent","text":"Good day.","at":"2026-11-21T10:00:00.123456+01:00"},{"role":"person","text":"Yes?","at":"2026-11-21T09:00:02Z"}],"truncated":true}`)
	return ev
}

// recorded returns the event of a recording. key is "" if the recording was deleted.
func (a *account) recorded(key string) *eventv1.DialEvent {
	return a.event(func(c *eventv1.Call) { c.RecordingKey = key }, func(ev *eventv1.DialEvent) { ev.Event = &eventv1.DialEvent_Recorded{Recorded: &eventv1.Recorded{}} })
}

const wantSpoken = `map[truncated:true turns:[map[at:2026-11-21T09:00:00.123Z role:agent text:Good day.] ` +
	`map[at:2026-11-21T09:00:02.000Z role:person text:Yes?]]]`

func (r *rig) refusal(path string) string { r.t.Helper(); return r.refusalAs(r.workspace, path) }

func (r *rig) refusalAs(workspace uuid.UUID, path string) string {
	r.t.Helper()
	got := r.doAs(workspace, "GET", path, nil)
	fault, _ := got.body["error"].(map[string]any)
	if got.status != http.StatusNotFound {
		r.t.Errorf("GET %s = %d %v", path, got.status, got.body)
	}
	return fmt.Sprint(fault["code"])
}

func TestTranscript_IsStoredAndShownIfTheTranscriptFeatureIsOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	off := r.account(r.place())
	off.publish(off.fenced(), off.dialing(), off.answered(), off.ended("completed", "normal_clearing"), off.transcribed(),
		off.captured(5))
	if _, shown := off.read()["transcript"]; shown {
		t.Error("transcript is stored or shown with the feature off: shown = true, want false")
	} else if got := r.count("SELECT count(*) FROM calls WHERE transcript IS NOT NULL"); got != 0 {
		t.Errorf(`calls with a transcript = %v, want 0`,
			got)
	}
	r.setFeatures(1, true, false)
	if got := r.refusal("/v1/calls/" + off.id() + "/transcript"); got != "transcript_not_available" {
		t.Errorf("a call from before: %s", got)
	}
	// In the second run the charge arrives before the analysis.
	for i, chargedFirst := range []bool{false, true} {
		on := r.account(r.place())
		on.publish(on.fenced(), on.dialing(), on.answered(), on.ended("completed", "normal_clearing"))
		if chargedFirst {
			on.publish(on.captured(5), on.transcribed())
		} else {
			on.publish(on.transcribed(), on.captured(5))
		}
		if got := fmt.Sprint(on.read()["transcript"]); got != wantSpoken {
			t.Errorf("on the call: %s", got)
		}
		if got := fmt.Sprint(r.want(http.StatusOK, "GET", "/v1/calls/"+on.id()+"/transcript", nil)); got != wantSpoken {
			t.Errorf("at its endpoint: %s", got)
		}
		operators := r.want(http.StatusOK, "GET", r.admin("/calls/"+on.id()), nil)
		if _, shown := operators["transcript"]; shown {
			t.Error("shown = true, want false")
		} else if operators["summary"] != nil {
			t.Errorf("summary for operators = %v, want null", operators["summary"])
		} else if on.read()["summary"] == nil {
			t.Error("summary of GET /v1/calls/{id} = null, want the summary")
		} else if operators["call_id"] != on.id() {
			t.Errorf(`operators["call_id"] = %v, want %v`, operators["call_id"], on.id())
		}
		events := r.events()
		if got := fmt.Sprint(events[len(events)-1]["data"].(map[string]any)["transcript"]); got != wantSpoken {
			t.Errorf("call.completed (charged first: %v) carries %s", chargedFirst, got)
		}
		r.setFeatures(int64(2+2*i), false, false)
		if _, shown := on.read()["transcript"]; shown {
			t.Error("shown after the feature was turned off: shown = true, want false")
		} else if got := r.refusal("/v1/calls/" + on.id() + "/transcript"); got != "transcript_not_available" {
			t.Errorf(`transcript after the feature was turned off = %q, want "transcript_not_available"`,
				got)
		}
		r.setFeatures(int64(3+2*i), true, false)
		if got := r.refusalAs(uuid.New(), "/v1/calls/"+on.id()+"/transcript"); got != "not_found" {
			t.Errorf("another workspace gets %s", got)
		}
	}
}

func TestRecording_CallHasALinkIfTheRecordingFeatureIsOn(t *testing.T) {
	t.Parallel()
	made, known := localLinks(t)
	r := newRig(t, func(s *settings) { s.links = made })
	a := r.account(r.place())
	key := recordingstore.Key(r.workspace, uuid.MustParse(a.id()), time.Now())
	a.publish(a.fenced(), a.dialing(), a.answered(), a.ended("completed", "normal_clearing"), a.analysed(),
		a.captured(5), a.recorded(key))
	path := "/v1/calls/" + a.id() + "/recording"
	if _, shown := a.read()["recording_url"]; shown {
		t.Error("shown after the feature was turned off: shown = true, want false")
	} else if got := r.refusal(path); got != "recording_not_available" {
		t.Errorf(`shown after the feature was turned off: r.refusal(path) = %q, want "recording_not_available"`, got)
	}
	r.setFeatures(1, false, true)
	got := r.want(http.StatusOK, "GET", path, nil)
	if got["expires_in"] != 3600.0 {
		t.Errorf(`recording: got["expires_in"] = %v, want 3600.0`, got["expires_in"])
	} else if len(got) != 2 {
		t.Errorf("recording: length of got = %d, want 2", len(got))
	}
	for _, text := range []any{got["url"], a.read()["recording_url"]} {
		link, err := url.Parse(fmt.Sprint(text))
		if err != nil {
			t.Fatal(err)
		}
		if link.Host != "api.example.com" {
			t.Errorf("link.Host = %q, want \"api.example.com\"", link.Host)
		}
		if link.Path != recordingstore.Path+key {
			t.Errorf("link.Path = %v, want %v", link.Path, recordingstore.Path+key)
		}
		if err := known.Check(key, link.Query(), time.Now().Add(59*time.Minute)); err != nil {
			t.Errorf("known.Check: %v", err)
		}
	}
	for _, event := range r.events() { // these events were published while the recording feature was off
		if _, shown := event["data"].(map[string]any)["recording_url"]; shown {
			t.Errorf("%v carries a link", event["type"])
		}
	}
	if got := r.refusalAs(uuid.New(), path); got != "not_found" {
		t.Errorf("another workspace gets %s", got)
	}
	r.setFeatures(2, false, false)
	if r.refusal(path) != "recording_not_available" {
		t.Error("shown after the feature was turned off")
	}
	r.setFeatures(3, false, true)
	a.publish(a.recorded(""))
	if _, shown := a.read()["recording_url"]; shown {
		t.Error("link to a deleted recording: shown = true, want false")
	} else if got := r.refusal(path); got != "recording_not_available" {
		t.Errorf(`shown though it lies there no more: r.refusal(path) = %q, want "recording_not_available"`, got)
	}
}

// Every event that is published after the recording was stored has a link to the recording.
func TestRecording_EventsHaveALinkIfTheFeatureIsOn(t *testing.T) {
	t.Parallel()
	made, known := localLinks(t)
	tests := []struct {
		name    string
		publish func(r *rig, a *account, key string)
		want    map[string]bool // whether the event of this type has a link
	}{
		{
			name: "the recording is stored after call.completed",
			publish: func(_ *rig, a *account, key string) {
				a.publish(a.ended("completed", "normal_clearing"), a.analysed(), a.captured(5000))
				a.publish(a.recorded(key))
			},
			want: map[string]bool{"call.completed": false, "call.recording_ready": true},
		},
		{
			name: "the recording is stored before the charge",
			publish: func(_ *rig, a *account, key string) {
				a.publish(a.ended("completed", "normal_clearing"), a.analysed(), a.recorded(key), a.captured(5000))
			},
			want: map[string]bool{"call.completed": true, "call.recording_ready": true},
		},
		{
			name: "the recording is stored before the deadline of call.completed",
			publish: func(r *rig, a *account, key string) {
				a.publish(a.ended("completed", "normal_clearing"), a.recorded(key))
				r.passDeadline()
				a.publish(a.analysed())
			},
			want: map[string]bool{"call.completed": true, "call.recording_ready": true, "call.analyzed": true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(s *settings) { s.links = made })
			r.setFeatures(1, false, true)
			a := r.account(r.place())
			a.publish(a.fenced(), a.dialing(), a.answered())
			key := recordingstore.Key(r.workspace, uuid.MustParse(a.id()), time.Now())
			tt.publish(r, a, key)
			got := map[string]bool{}
			for _, event := range r.events() {
				kind := event["type"].(string)
				if kind == "call.answered" {
					continue
				}
				text, has := event["data"].(map[string]any)["recording_url"].(string)
				got[kind] = has
				link, err := url.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				if !has {
					continue
				}
				if err := known.Check(key, link.Query(), time.Now().Add(59*time.Minute)); err != nil {
					t.Errorf("link of %s: %v", kind, err)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("events with a link (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecording_EventsOfAnErasedCallHaveNoLink(t *testing.T) {
	t.Parallel()
	made, _ := localLinks(t)
	r := newRig(t, func(s *settings) { s.links = made })
	r.setFeatures(1, false, true)
	a := r.account(r.place())
	key := recordingstore.Key(r.workspace, uuid.MustParse(a.id()), time.Now())
	a.publish(a.ended("completed", "normal_clearing"), a.recorded(key))
	r.exec(`UPDATE calls SET erased_at = now(), recording_key = NULL`)
	r.passDeadline()
	for _, event := range r.events() {
		if link := event["data"].(map[string]any)["recording_url"]; link != nil {
			t.Errorf("%v has the link %v", event["type"], link)
		}
	}
}

func TestRecording_LinkIsSignedWithoutARequestToTheStorage(t *testing.T) {
	t.Parallel()
	links, err := recordings.NewLinks(recordingstore.Storage{
		URL: "http://127.0.0.1:1", PublicURL: "https://files.example.com", Region: "eu-1", Bucket: "calls",
		AccessKey: "a", SecretKey: "s",
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := links.Link(t.Context(), "w/2026/11/21/c.wav")
	link, fault := url.Parse(text)
	if err != nil {
		t.Fatalf("Link: %v", err)
	}
	if fault != nil {
		t.Fatalf("url.Parse: %v", fault)
	}
	if link.Scheme != "https" {
		t.Errorf("link.Scheme = %q, want \"https\"", link.Scheme)
	}
	if link.Host != "files.example.com" {
		t.Errorf("link.Host = %q, want \"files.example.com\"", link.Host)
	}
	if link.Path != "/calls/w/2026/11/21/c.wav" {
		t.Errorf("link.Path = %q, want \"/calls/w/2026/11/21/c.wav\"", link.Path)
	}
	if link.Query().Get("X-Amz-Expires") != "3600" {
		t.Errorf("link.Query().Get(\"X-Amz-Expires\") = %q, want \"3600\"", link.Query().Get("X-Amz-Expires"))
	}
	if link.Query().Get("X-Amz-Signature") == "" {
		t.Errorf("link.Query().Get(\"X-Amz-Signature\") is empty")
	}
}
