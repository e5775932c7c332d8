// Command fakelive serves the fake of the Live protocol as a separate process, for the local trial
// and for tests of the real binaries. A script says what the person says and what the model answers.
// GET /received?type=… and /sent?type=… list the events as JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"ringfence.dev/services/dialer/internal/agent/modeltest"
)

// line is the nth thing that the person says, and the model's answer.
type line struct {
	Heard string `json:"heard"`
	Text  string `json:"text"`
	Tool  string `json:"tool"`
	Args  string `json:"args"`
}

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on; the first line of the output is its URL")
	script := flag.String("script", "", "JSON file: a list of {heard, text, tool, args}")
	flag.Parse()
	lines, err := readScript(*script)
	if err != nil {
		log.Fatalf("read script: %v", err)
	}
	server := modeltest.UnstartedLive(modeltest.LiveOptions{Hears: hears(lines), Reply: reply(lines)})
	mux := http.NewServeMux()
	mux.Handle(modeltest.Path, server)
	mux.HandleFunc("GET /received",
		func(w http.ResponseWriter, r *http.Request) { list(w, server.Received(r.URL.Query().Get("type"))) })
	mux.HandleFunc("GET /sent",
		func(w http.ResponseWriter, r *http.Request) { list(w, server.Sent(r.URL.Query().Get("type"))) })
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ws://%s%s\n", listener.Addr(), modeltest.Path)
	log.Fatal(http.Serve(listener, mux)) //nolint:gosec // for tests only
}

func readScript(path string) (lines []line, err error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return lines, json.Unmarshal(text, &lines)
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

// reply answers what the script knows. The result of a tool ends the call.
func reply(lines []line) func(string) modeltest.LiveReply {
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
