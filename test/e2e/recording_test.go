package e2e

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

type kept struct {
	Status       string `json:"status"`
	RecordingURL string `json:"recording_url"`
}

func recordedCall(t *testing.T, w *kit.Workspace, to string, during func(callID string)) (id string, call kept) {
	t.Helper()
	req, err := w.Place(t.Context(), map[string]any{"to": to})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the call exists", func() bool {
		req, err = w.Request(t.Context(), req.ID)
		return err == nil && req.CallID != nil
	})
	during(*req.CallID)
	until(t, "there is a recording", func() bool {
		call = kept{}
		return w.API.Into(t.Context(), "GET", "/v1/calls/"+*req.CallID, nil, 200, &call) == nil && call.RecordingURL != ""
	})
	return *req.CallID, call
}

func ended(t *testing.T, w *kit.Workspace, to string) (callID string) {
	t.Helper()
	req, err := w.Place(t.Context(), map[string]any{"to": to})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the call has ended", func() bool {
		req, err = w.Request(t.Context(), req.ID)
		return err == nil && req.Final()
	})
	return finishedCall(t, w, req.ID).CallID
}

func fetch(t *testing.T, link, ranges string) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", link, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ranges != "" {
		req.Header.Set("Range", ranges)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if body, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body
}

const headerBytes = 58

// readChannels checks the format of a recording and returns the samples of both channels.
func readChannels(t *testing.T, file []byte) (person, agent []byte) {
	t.Helper()
	if len(file) < headerBytes {
		t.Errorf("length of file = %v, want at least %v", len(file), headerBytes)
	}
	sharedstack.Equal(t, "string(file[:4])", string(file[:4]), "RIFF")
	sharedstack.Equal(t, "string(file[8:16])", string(file[8:16]), "WAVEfmt ")
	sharedstack.Equal(t, "binary.LittleEndian.Uint16(file[20:])", binary.LittleEndian.Uint16(file[20:]), 7)
	sharedstack.Equal(t, "binary.LittleEndian.Uint16(file[22:])", binary.LittleEndian.Uint16(file[22:]), 2)
	sharedstack.Equal(t, "binary.LittleEndian.Uint32(file[24:])", binary.LittleEndian.Uint32(file[24:]), 8000)
	if t.Failed() {
		t.FailNow()
	}
	if sound := int(binary.LittleEndian.Uint32(file[54:])); sound != len(file)-headerBytes {
		t.Fatalf("the header says %d bytes of sound, there are %d", sound, len(file)-headerBytes)
	}
	for i := headerBytes; i+1 < len(file); i += 2 {
		person, agent = append(person, file[i]), append(agent, file[i+1])
	}
	return person, agent
}

func sounding(samples []byte) time.Duration {
	return time.Duration(len(samples)-bytes.Count(samples, []byte{0xff})) * time.Second / 8000
}

func (k kept) mustSound(t *testing.T, least, most time.Duration) {
	t.Helper()
	status, file := fetch(t, k.RecordingURL, "")
	if status != 200 {
		t.Fatalf("GET %s = %d %s", k.RecordingURL, status, file)
	}
	person, agent := readChannels(t, file)
	// The far end sends back the audio that it receives, so both channels contain the tone. The tone
	// is in the person's channel a moment later than in the agent's channel.
	for side, samples := range map[string][]byte{"person": person, "agent": agent} {
		if length := sounding(samples); length < least {
			t.Errorf("sounding: length = %v, want at least %v; side = %s", length, least, side)
		} else if length > most {
			t.Errorf("sounding: length = %v, want at most %v; side = %s", length, most, side)
		}
	}
	if status, part := fetch(t, k.RecordingURL, "bytes=0-3"); status != http.StatusPartialContent {
		t.Errorf("a range: status = %v, want %v", status, http.StatusPartialContent)
	} else if string(part) != "RIFF" {
		t.Errorf(`a range: part = %q, want "RIFF"`, string(part))
	}
}

// subscribeToRecordings returns a function that counts the signed deliveries of
// call.recording_ready of a call.
func subscribeToRecordings(t *testing.T, w *kit.Workspace, hooks *kit.Receiver) func(callID string) int {
	t.Helper()
	path := w.ID + "/recordings"
	var made struct {
		Secret string `json:"signing_secret"`
	}
	body := map[string]any{"name": "recordings", "url": hooks.URL + "/" + path, "events": []string{"call.recording_ready"}}
	if err := w.API.Into(t.Context(), "POST", "/v1/webhook-subscriptions", body, 201, &made); err != nil {
		t.Fatal(err)
	}
	hooks.SetSecret("/"+path, made.Secret)
	return func(callID string) (n int) {
		for _, d := range hooks.Deliveries(path) {
			if d.Signed && d.Type == "call.recording_ready" && d.CallID == callID {
				n++
			}
		}
		return n
	}
}

// TestRecording_IsAnnouncedStoredAndErased records calls over a SIP trunk and stores them in an S3
// server that verifies signatures. It kills a dialer during one call, and at the end erases the
// person's data.
func TestRecording_IsAnnouncedStoredAndErased(t *testing.T) {
	far := sippFarm(t, kit.Script(`([0-9][0-9])`, []string{"number"}, kit.Respond("180 Ringing"), `<pause milliseconds="200"/>`, kit.Answer(), kit.ExpectBye(), kit.Over()))
	s3, spool := testkit.New(), t.TempDir()
	defer s3.Close()
	s, w, hooks := overSIP(t, []*kit.Sipp{far}, "RECORDINGS_SPOOL_DIR="+spool, "INSTANCE_LEASE=2s",
		"RECORDINGS_S3_URL="+s3.URL, "RECORDINGS_S3_REGION="+testkit.Region, "RECORDINGS_S3_BUCKET="+testkit.Bucket, "RECORDINGS_S3_ACCESS_KEY="+testkit.AccessKey, "RECORDINGS_S3_SECRET_KEY="+testkit.SecretKey)
	admin := func(method, path string, body any, status int) {
		t.Helper()
		if err := w.Admin.Into(t.Context(), method, "/admin/v1/"+path, body, status, nil); err != nil {
			t.Fatal(err)
		}
	}
	admin("PATCH", "workspaces/"+w.ID, map[string]any{"features": map[string]any{"recordings": true}}, 200)
	agent := "workspaces/" + w.ID + "/agents/" + w.AgentID
	admin("PATCH", agent, map[string]any{"script": map[string]any{"tone_hz": 440, "tone_millis": 1500, "end_after_millis": 2500, "speaks": true}}, 200)

	announced := subscribeToRecordings(t, w, hooks)
	var id string
	var call kept
	until(t, "the dialer has applied the setting", func() bool { // this takes up to 5 s
		id = ended(t, w, number(201))
		return kit.Until(t.Context(), 4*time.Second, "an object", func() (bool, error) { return len(s3.Objects()) > 0, nil }) == nil
	})
	until(t, "the call has a recording", func() bool {
		return w.API.Into(t.Context(), "GET", "/v1/calls/"+id, nil, 200, &call) == nil && call.RecordingURL != ""
	})
	until(t, "call.recording_ready arrives", func() bool { return announced(id) == 1 })
	// The recording contains the tone of 1.5 s. The notice before the tone is not recorded.
	call.mustSound(t, 1200*time.Millisecond, 1520*time.Millisecond)
	var link struct {
		URL       string `json:"url"`
		ExpiresIn int    `json:"expires_in"`
	}
	if err := w.API.Into(t.Context(), "GET", "/v1/calls/"+id+"/recording", nil, 200, &link); err != nil {
		t.Errorf("Into: %v", err)
	} else if link.ExpiresIn != 3600 {
		t.Errorf("link.ExpiresIn = %v, want 3600", link.ExpiresIn)
	}
	s3.Later(3601 * time.Second)
	if status, _ := fetch(t, link.URL, ""); status != http.StatusForbidden {
		t.Errorf("an hour later the link = %d", status)
	}
	s3.Later(-3601 * time.Second)

	others := len(s3.Objects())

	// The test kills a dialer during a call. The recording up to the kill must be stored.
	admin("PATCH", agent, map[string]any{"script": map[string]any{"tone_hz": 440, "tone_millis": 20000, "end_after_millis": 0, "speaks": true}}, 200)
	var cut kept
	var cutID string
	cutID, cut = recordedCall(t, w, number(202), func(callID string) {
		until(t, "a second of the recording is on the disk", func() bool {
			info, err := os.Stat(filepath.Join(spool, callID+".wav"))
			return err == nil && info.Size() > headerBytes+16000
		})
		s.KillOne("dialer", 0)
	})
	cut.mustSound(t, 800*time.Millisecond, 20*time.Second)
	until(t, "call.recording_ready of the second call arrives", func() bool { return announced(cutID) == 1 })

	p := &erased{w: w, to: number(202)}
	done := carriedOut(t, w, p.erase(t))
	if got := len(s3.Objects()); got != others {
		t.Errorf("length of s3.Objects() = %d, want %d", got, others)
	} else if done.DoneAt == nil {
		t.Error("done.DoneAt = nil, want a value")
	}
	if err := w.API.Into(t.Context(), "GET", "/v1/calls/"+cutID+"/recording", nil, 404, nil); err != nil {
		t.Error(err)
	}

	// When the feature is turned off, recordings are hidden.
	admin("PATCH", "workspaces/"+w.ID, map[string]any{"features": map[string]any{"recordings": false}}, 200)
	until(t, "the recording is hidden", func() bool {
		hidden := kept{}
		return w.API.Into(t.Context(), "GET", "/v1/calls/"+id, nil, 200, &hidden) == nil && hidden.RecordingURL == ""
	})
}
