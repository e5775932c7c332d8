// Command go is an example of a webhook receiver: it verifies the signature, ignores repeated
// deliveries, responds immediately and processes events afterwards. It uses the standard library
// only. Copy webhook/verify.go unchanged; adapt the rest.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"ringfence.dev/examples/receivers/go/webhook"
)

const (
	// bytes; the largest event contains a call with its transcript, and a transcript has at most
	// 256 KiB
	maxBody  = 1 << 20
	maxQueue = 1000   // the maximum number of events that wait for processing
	maxSeen  = 10_000 // the maximum number of remembered delivery ids
)

type event struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data struct {
		CallID *string `json:"call_id"` // null in the event webhook.test
	} `json:"data"`
}

type receiver struct {
	secret string
	queue  chan event

	mu     sync.Mutex
	seen   map[string]bool
	oldest []string // the delivery ids in the order of their arrival
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	} else if err != nil {
		return // the sender disconnected and will send the event again
	}
	if err := webhook.Verify(r.secret, req.Header.Get("X-Service-Signature"), body, time.Now()); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var got event
	if err := json.Unmarshal(body, &got); err != nil {
		http.Error(w, "the body is not JSON", http.StatusBadRequest)
		return
	}
	if !r.enqueue(req.Header.Get("X-Service-Delivery-Id"), got) {
		http.Error(w, "busy: try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// enqueue queues an event only once for each delivery id. If the queue is full, it returns false
// and does not store the id. The sender then repeats the delivery.
//
// This example keeps the queue and the ids in memory. In production, store the event and the id in
// one transaction of your database. An event to which you responded with 2xx then survives a crash.
func (r *receiver) enqueue(deliveryID string, got event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[deliveryID] {
		fmt.Println("repeat", got.Type, got.ID)
		return true
	}
	select {
	case r.queue <- got:
	default:
		return false
	}
	r.seen[deliveryID], r.oldest = true, append(r.oldest, deliveryID)
	if len(r.oldest) > maxSeen {
		delete(r.seen, r.oldest[0])
		r.oldest = r.oldest[1:]
	}
	return true
}

// processEvents processes events. Replace it with your code, which can take any amount of time: the
// response to the webhook has already been sent.
func (r *receiver) processEvents() {
	for got := range r.queue {
		call := ""
		if got.Data.CallID != nil {
			call = *got.Data.CallID
		}
		fmt.Println("received", got.Type, got.ID, call)
	}
}

func run() error {
	r := &receiver{secret: os.Getenv("WEBHOOK_SECRET"), queue: make(chan event, maxQueue), seen: map[string]bool{}}
	if !strings.HasPrefix(r.secret, "whsec_") {
		return errors.New("WEBHOOK_SECRET must be the whole signing_secret, whsec_ included")
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(os.Getenv("HOST"), "127.0.0.1"), cmp.Or(os.Getenv("PORT"), "8443")))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /webhooks", r)
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go r.processEvents()
	cert, key := os.Getenv("TLS_CERT_FILE"), os.Getenv("TLS_KEY_FILE")
	if cert == "" { // without a certificate, a proxy must terminate TLS
		fmt.Printf("listening on http://%s/webhooks\n", listener.Addr())
		return server.Serve(listener)
	}
	fmt.Printf("listening on https://%s/webhooks\n", listener.Addr())
	return server.ServeTLS(listener, cert, key)
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
