// Command fake-speech-model is a fake of a speech model, for tests and benchmarks that run the real
// dialer. The program serves the OpenAI Realtime API or the OpenAI Live API.
//
// The first line of the output is the URL of the model. GET /received?type=… and GET /sent?type=…
// list the events as JSON. With -protocol realtime, GET /voice?text=… returns the audio of a text
// as 8 kHz mu-law.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"ringfence.dev/services/dialer/internal/agent/modeltest"
)

// scriptLine is one exchange of the script: the words of the person (heard) and the model's reply.
type scriptLine struct {
	Heard string `json:"heard"`
	Text  string `json:"text"`
	// Millis is the length of the audio. 0 means the length of Text. Only the Realtime API uses
	// Millis.
	Millis int    `json:"millis"`
	Tool   string `json:"tool"`
	Args   string `json:"args"`
}

type model interface {
	http.Handler
	Received(kind string) []json.RawMessage
	Sent(kind string) []json.RawMessage
}

func main() {
	protocol := flag.String("protocol", "realtime", "API to serve: realtime or live")
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on")
	echo := flag.Bool("echo", false, "send each received audio frame back (realtime only)")
	pace := flag.Duration("pace", 0, "pause between two pieces of audio (realtime only)")
	script := flag.String("script", "", "JSON file: a list of {heard, text, millis, tool, args}")
	flag.Parse()
	lines, err := readScript(*script)
	if err != nil {
		log.Fatalf("read script: %v", err)
	}
	var server model
	path := modeltest.Path
	switch *protocol {
	case "realtime":
		path = "/v1/realtime"
		server = modeltest.UnstartedRealtime(modeltest.RealtimeOptions{
			Echo: *echo, Pace: *pace, Hears: transcriptFunc(lines), Reply: realtimeReply(lines, *echo),
		})
	case "live":
		server = modeltest.UnstartedLive(modeltest.LiveOptions{Hears: transcriptFunc(lines), Reply: liveReply(lines)})
	default:
		log.Fatalf("-protocol = %q, want realtime or live", *protocol)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ws://%s%s\n", listener.Addr(), path)
	log.Fatal(http.Serve(listener, routes(path, server))) //nolint:gosec // this program is used only in tests
}

func readScript(path string) (lines []scriptLine, err error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return lines, json.Unmarshal(text, &lines)
}

func routes(path string, server model) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(path, server)
	mux.HandleFunc("GET /received", func(w http.ResponseWriter, r *http.Request) {
		writeEvents(w, server.Received(r.URL.Query().Get("type")))
	})
	mux.HandleFunc("GET /sent", func(w http.ResponseWriter, r *http.Request) {
		writeEvents(w, server.Sent(r.URL.Query().Get("type")))
	})
	if _, realtime := server.(*modeltest.RealtimeServer); realtime {
		mux.HandleFunc("GET /voice", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "audio/basic")
			_, _ = w.Write(modeltest.Voice(r.URL.Query().Get("text"), 0))
		})
	}
	return mux
}

func writeEvents(w http.ResponseWriter, events []json.RawMessage) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(append([]json.RawMessage{}, events...))
}

// transcriptFunc returns a function that returns the transcript of the person's nth utterance.
// After the last line of the script, it returns an ellipsis.
func transcriptFunc(lines []scriptLine) func(int) string {
	return func(n int) string {
		if n > 0 && n <= len(lines) {
			return lines[n-1].Heard
		}
		return "…"
	}
}

// realtimeReply returns a function that replies to a transcript with the matching line of the
// script. If the dialer requests an exact text, the reply is that text. Any other transcript or a
// tool result ends the call.
func realtimeReply(lines []scriptLine, echo bool) func(heard, asked string, n int) modeltest.RealtimeReply {
	return func(heard, asked string, _ int) modeltest.RealtimeReply {
		if echo {
			return modeltest.RealtimeReply{Text: "Hello.", Length: 200 * time.Millisecond}
		}
		for _, l := range lines {
			if heard != "" && heard == l.Heard {
				length := time.Duration(l.Millis) * time.Millisecond
				return modeltest.RealtimeReply{Text: l.Text, Length: length, Tool: l.Tool, Args: l.Args}
			}
		}
		if asked == "" && heard != "" {
			return modeltest.RealtimeReply{Text: "That is noted. Goodbye.", Tool: "end_call"}
		}
		return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day, how may I help?")}
	}
}

// liveReply returns a function that replies to a transcript with the matching line of the script.
// The reply to a tool result ends the call, and any other transcript gets a greeting.
func liveReply(lines []scriptLine) func(string) modeltest.LiveReply {
	return func(heard string) modeltest.LiveReply {
		for _, l := range lines {
			if heard == l.Heard {
				return modeltest.LiveReply{Text: l.Text, Tool: l.Tool, Args: l.Args}
			}
		}
		if json.Valid([]byte(heard)) {
			return modeltest.LiveReply{Text: "That is noted. Goodbye.", Tool: "end_call"}
		}
		return modeltest.LiveReply{Text: "Good day, how may I help?"}
	}
}
