package realtime_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
	"ringfence.dev/services/dialer/internal/agent/realtime"
	"ringfence.dev/services/dialer/internal/conversation"
)

// This test connects a session directly with a conversation, without a phone call.
func TestConversation_PersonInterruptsOptsOutAndHearsTheFarewell(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.RealtimeOptions{
		Hears: func(int) string { return "Never call me again." },
		Reply: func(heard, asked string, _ int) modeltest.RealtimeReply {
			switch {
			case heard == "Never call me again.":
				return modeltest.RealtimeReply{Tool: agent.ToolOptOut, Args: `{"quote":"never call me again"}`}
			case strings.Contains(heard, "noted"):
				return modeltest.RealtimeReply{
					Text:   "It is noted, goodbye.",
					Length: 700 * time.Millisecond,
					Tool:   agent.ToolEndCall,
					Args:   `{"outcome":"opted_out"}`,
				}
			}
			return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, ""), Length: 2 * time.Second}
		},
	})
	settings := agent.Settings{Greeting: "Good day, I call about tea and many other things that you may like."}
	s, err := realtime.New(
		realtime.Config{URL: server.URL, Key: "k", Model: "m", TranscriptionModel: "t"},
		ssrf.New(nil),
		nil,
	).Open(
		t.Context(),
		agent.Spec{Settings: settings},
	)
	if err != nil {
		t.Fatal(err)
	}
	optedOut := make(chan string, 1)
	c := conversation.New(
		s,
		conversation.Settings{Agent: settings},
		nil,
		nil,
		func(words string, _ time.Time) { optedOut <- words },
	)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	over := make(chan conversation.Result, 1)
	go func() { over <- c.Run(ctx) }()

	quiet, voice, frame := bytes.Repeat([]byte{0xff}, 160), bytes.Repeat([]byte{0x10, 0x90}, 80), make([]byte, 160)
	tick := time.NewTicker(time.Millisecond) // one frame of 20 ms per millisecond: twenty times real time
	defer tick.Stop()
	played := 0
	for {
		select {
		case result := <-over:
			check(t, server, result, <-optedOut, played)
			return
		case <-tick.C:
		}
		if c.NextFrame(frame) {
			played++
		}
		if played > 140 && len(server.Sent("input_audio_buffer.speech_stopped")) == 0 &&
			len(server.Sent("input_audio_buffer.speech_started")) == 0 {
			c.HearFrame(voice) // the person interrupts after 0.8 s of the greeting
		} else {
			c.HearFrame(quiet)
		}
	}
}

func check(t *testing.T, server *modeltest.RealtimeServer, result conversation.Result, words string, played int) {
	t.Helper()
	switch {
	case result.Cause != "normal_clearing":
		t.Errorf(`result.Cause = %v, want "normal_clearing"`, result.Cause)
	case result.Outcome != agent.OutcomeOptedOut:
		t.Errorf("result.Outcome = %v, want %v", result.Outcome, agent.OutcomeOptedOut)
	case !result.OptedOut:
		t.Error("result.OptedOut = false, want true")
	case words != "Never call me again.":
		t.Errorf(`words = %v, want "Never call me again."`, words)
	}
	if faults := server.Sent("error"); len(faults) > 0 {
		t.Errorf("the server refused %s", faults)
	}
	truncated := waitReceived(t, server, "conversation.item.truncate", 1)["audio_end_ms"].(float64)
	// The disclosure lasts 2,000 ms and the farewell 700 ms. The rest of the played audio is the
	// interrupted greeting.
	switch left := float64(played*20) - 2700; {
	case truncated != left:
		t.Errorf("truncated = %v, want %v", truncated, left)
	case truncated < 600:
		t.Errorf("truncated = %v, want at least 600", truncated)
	case truncated > 1990:
		t.Errorf("truncated = %v, want at most 1990", truncated)
	}
	var texts []string
	for _, turn := range result.Turns {
		texts = append(texts, turn.Text)
	}
	transcript := strings.Join(texts, "|")
	if !strings.HasPrefix(transcript, "Hello, you are talking to an AI assistant.|Good day, I call") {
		t.Errorf("transcript = %q, want it to begin with %q",
			transcript, "Hello, you are talking to an AI assistant.|Good day, I call")
	} else if !strings.HasSuffix(transcript, " –|Never call me again.|It is noted, goodbye.") {
		t.Errorf(`transcript = %q, want it to end with " –|Never call me again.|It is noted, goodbye."`, transcript)
	}
}
