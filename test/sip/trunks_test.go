package sip_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/test/kit"
)

// changeTrunk changes settings of the trunk for calls that begin later.
func (w *testStack) changeTrunk(t *testing.T, settings map[string]any) {
	t.Helper()
	if err := kit.NewClient(w.Demo.AdminURL, w.Demo.AdminToken).Into(t.Context(), "PATCH", "/admin/v1/trunks/"+w.trunk, settings, 200, nil); err != nil {
		t.Fatal(err)
	}
}

// TestTrunks_CallsCompleteOverTCPAndTLS calls over TCP with A-law, and over TLS with SRTP to a real
// phone. The test is not parallel, because it changes the trunk that the parallel tests share.
func TestTrunks_CallsCompleteOverTCPAndTLS(t *testing.T) {
	w := sharedWorld(t)
	house := w.house(t, map[string]any{"features": map[string]any{"transcripts": true}})
	standard := map[string]any{
		"port": w.proxy, "transport": "udp", "srtp": "off", "username": account, "password": secret, "register": true, "ca_certificates": nil, "codecs": nil,
	}
	defer w.changeTrunk(t, standard)
	tcp := func(t *testing.T, settings map[string]any, far func(*ear) script, status, cause, last string) *ear {
		t.Helper()
		w.changeTrunk(t, settings)
		e, port := listen(t), peertest.Port(t)
		if far != nil {
			far := sipp(t, port, far(e))
			until(t, "the far end listens", func() bool { return testkit.Open("udp", port) })
			defer far.Ends(t)
		}
		req, err := house.Place(t.Context(), map[string]any{"to": number(port),
			"agent_id": agent(t, house, toneSettings(600, 2000))})
		if err != nil {
			t.Fatal(err)
		}
		if call := w.awaitCall(t, house, req, last); call.Status != status {
			t.Errorf("call: call.Status = %v, want %v", call.Status, status)
		} else if *call.HangupCause != cause {
			t.Errorf("call: *call.HangupCause = %v, want %v", *call.HangupCause, cause)
		}
		return e
	}
	t.Run("TCP, A-law first", func(t *testing.T) {
		e := tcp(t, map[string]any{"transport": "tcp", "codecs": []string{"pcma", "pcmu"}}, func(e *ear) script {
			return receiveOver("tcp").answer(strings.NewReplacer("AVP 0", "AVP 8", "0 PCMU",
				"8 PCMA").Replace(e.description("sendrecv"))).hungUp()
		}, "completed", "normal_clearing", "call.completed")
		if frames, _ := e.heard(); frames < 20 {
			t.Errorf("heard: frames = %v, want at least 20", frames)
		} else if e.kind != 8 {
			t.Errorf("heard: e.kind = %v, want 8", e.kind)
		}
	})
	t.Run("TLS and SRTP", func(t *testing.T) {
		dir := t.TempDir()
		key, cert, err := peertest.Certificate("127.0.0.1")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "cert.pem"), append(key, cert...), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		bo := newPhone(t, writeSpeech(t, []int{2}, interruption),
			fmt.Sprintf("sip_certificate %s\nmodule srtp.so\n", filepath.Join(dir, "cert.pem")),
			"<sip:NUMBER@127.0.0.1:PORT;transport=tls>;regint=0;answermode=auto;mediaenc=srtp-mand")
		w.changeTrunk(t, map[string]any{"transport": "tls", "port": bo.Port + 1, "srtp": "required",
			"ca_certificates": string(cert), "username": nil, "password": nil, "register": false})
		ida := agent(t, house, map[string]any{"kind": "openai_realtime", "greeting": "Good day.", "disclosure": map[string]any{"off_reason": "a test"}})
		transcriptions := func() (list []map[string]any, err error) {
			path := "/sent?type=conversation.item.input_audio_transcription.completed"
			err = kit.NewClient(w.model, "").Into(t.Context(), "GET", path, nil, 200, &list)
			return list, err
		}
		before, err := transcriptions() // the number of transcriptions that earlier tests requested
		if err != nil {
			t.Fatal(err)
		}
		req, err := house.Place(t.Context(), map[string]any{"to": number(bo.Port), "agent_id": ida})
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the model hears the person", func() bool {
			heard, err := transcriptions()
			if ended, err := house.Request(t.Context(), req.ID); err == nil && ended.Final() {
				t.Fatalf("the call ended: %+v", ended)
			}
			return err == nil && len(heard) > len(before)
		})
		bo.Do(t, "hangup")
		call := w.awaitCall(t, house, req, "call.completed")
		if call.Status != "completed" {
			t.Errorf(`call: call.Status = %q, want "completed"`, call.Status)
		} else if *call.HangupCause != "normal_clearing" {
			t.Errorf(`call: *call.HangupCause = %q, want "normal_clearing"`, *call.HangupCause)
		}
		if found := soundParts(bo.recordedSamples(t, "dec")); len(found) == 0 {
			t.Error("runs: length of found = 0, want more")
		} else if got := length(found[0][1] - found[0][0]); got < 400*time.Millisecond {
			t.Errorf("runs: length(found[0][1]-found[0][0]) = %v, want at least %v", got, 400*time.Millisecond)
		}
	})
}
