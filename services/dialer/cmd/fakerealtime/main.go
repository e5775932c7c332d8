// Command fakerealtime serves the Realtime protocol's fake as a separate process, for tests and measurements of the
// real binaries. A script contains what the person says, as its voice detection finds it, and what it answers.
// GET /received?type=… and /sent?type=… list the events as JSON. GET /voice?text=… returns the audio of a text in
// mu-law.
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

// line of a script: the nth time that somebody speaks, Heard is what was said, and the rest what is answered.
type line struct {
	Heard  string `json:"heard"`
	Text   string `json:"text"`
	Millis int    `json:"millis"`
	Tool   string `json:"tool"`
	Args   string `json:"args"`
}

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on; the first line of the output tells it")
	echo := flag.Bool("echo", false, "send back what is heard, frame by frame")
	pace := flag.Duration("pace", 0, "pause between two pieces of audio")
	script := flag.String("script", "", "JSON file: a list of {heard, text, millis, tool, args}")
	flag.Parse()
	var lines []line
	if *script != "" {
		text, err := os.ReadFile(*script)
		if err == nil {
			err = json.Unmarshal(text, &lines)
		}
		if err != nil {
			log.Fatalf("read the script: %v", err)
		}
	}
	server := modeltest.UnstartedRealtime(modeltest.RealtimeOptions{Echo: *echo, Pace: *pace, Hears: hears(lines), Reply: reply(lines, *echo)})
	mux := http.NewServeMux()
	mux.Handle("/v1/realtime", server)
	mux.HandleFunc("GET /received", func(w http.ResponseWriter, r *http.Request) { list(w, server.Received(r.URL.Query().Get("type"))) })
	mux.HandleFunc("GET /sent", func(w http.ResponseWriter, r *http.Request) { list(w, server.Sent(r.URL.Query().Get("type"))) })
	mux.HandleFunc("GET /voice", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "audio/basic")
		_, _ = w.Write(modeltest.Voice(r.URL.Query().Get("text"), 0))
	})
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ws://%s/v1/realtime\n", listener.Addr())
	log.Fatal(http.Serve(listener, mux)) //nolint:gosec // a test's
}

func list(w http.ResponseWriter, events []json.RawMessage) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(append([]json.RawMessage{}, events...))
}

func hears(lines []line) func(int) string {
	return func(n int) string {
		if n > 0 && n <= len(lines) {
			return lines[n-1].Heard
		}
		return "…"
	}
}

// reply answers what was heard with the line that hears it; what is to be said exactly is; a tool's result ends in goodbye.
func reply(lines []line, echo bool) func(heard, asked string, n int) modeltest.RealtimeReply {
	return func(heard, asked string, _ int) modeltest.RealtimeReply {
		if echo {
			return modeltest.RealtimeReply{Text: "Hello.", Length: 200 * time.Millisecond}
		}
		for _, l := range lines {
			if heard != "" && heard == l.Heard {
				return modeltest.RealtimeReply{Text: l.Text, Length: time.Duration(l.Millis) * time.Millisecond, Tool: l.Tool, Args: l.Args}
			}
		}
		if asked == "" && heard != "" {
			return modeltest.RealtimeReply{Text: "That is noted. Goodbye.", Tool: "end_call"}
		}
		return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day, how may I help?")}
	}
}
