// Measurements of the delivery of webhooks through the whole stack: webhook-dispatcher with Kafka
// and Postgres. They are compared to POST requests to the same receiver. README.md describes each
// figure.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const dispatcher = "webhook-dispatcher"

// receiverHosts is the number of hosts of the receiver: one for the healthy endpoint and ten for
// the endpoints that hang.
const receiverHosts = 11

// WebhookSetup are the parameters of the measurements.
type WebhookSetup struct {
	Stack *kit.Stack
	// Home is the folder of the stack. DB is the superuser's URL of the stack's database.
	Home, DB string
	// CAFile and KeyFile are the certificate and key of the authority that the services trust.
	CAFile, KeyFile string
	// Each is the duration of one measurement. Soak is the duration of the measurement of the
	// function Soak.
	Each, Soak time.Duration
	// Records is the number of deliveries of the backlog.
	Records int
}

// WebhookStack is the state that the measurements share.
type WebhookStack struct {
	WebhookSetup
	receiver        *Receiver
	bus             *kafka.Client
	db              *pgx.Conn
	private, broker string
	postmaster      string
	templates       []template
	// backlogRate is the rate in the measurement Deliveries, in deliveries per second. It is 0 before
	// this measurement.
	backlogRate float64
	serial      atomic.Int64
}

// OpenWebhooks starts the receiver and places one call. The events of this call are the templates
// of all other events.
func OpenWebhooks(ctx context.Context, setup WebhookSetup) (h *WebhookStack, err error) {
	h = &WebhookStack{WebhookSetup: setup}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	ports, err := h.ports()
	if err != nil {
		return nil, err
	}
	h.private, h.broker = "http://127.0.0.1:"+strconv.Itoa(ports[dispatcher+" private 1"]), fmt.Sprintf("127.0.0.1:%d", ports["kafka"])
	if h.receiver, err = Start(setup.CAFile, setup.KeyFile, receiverHosts); err != nil {
		return nil, err
	}
	if h.bus, err = kafka.NewClient(kafka.Config{Brokers: []string{h.broker}}, "bench", nil); err != nil {
		return nil, err
	}
	if h.db, err = pgx.Connect(ctx, setup.DB); err != nil {
		return nil, err
	}
	var backend int
	if err := h.db.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return nil, err
	}
	h.postmaster = probe.Parent(strconv.Itoa(backend))
	h.templates, err = h.learn(ctx)
	return h, err
}

// Close stops the receiver and closes the connections.
func (h *WebhookStack) Close() {
	if h.receiver != nil {
		_ = h.receiver.Stop()
	}
	if h.bus != nil {
		h.bus.Close()
	}
	if h.db != nil {
		_ = h.db.Close(context.Background())
	}
}

func (h *WebhookStack) ports() (map[string]int, error) {
	data, err := os.ReadFile(filepath.Join(h.Home, "state.json"))
	if err != nil {
		return nil, err
	}
	var known struct{ Ports map[string]int }
	if err := json.Unmarshal(data, &known); err != nil {
		return nil, fmt.Errorf("read the stack's state: %w", err)
	}
	return known.Ports, nil
}

func (h *WebhookStack) lane() string { return fmt.Sprintf("lane%d", h.serial.Add(1)) }

// endpoint is a subscription with its own workspace.
type endpoint struct {
	workspace    *kit.Workspace
	subscription string
	lane, url    string
	source       *source
	// expected is the number of requests that the endpoint's lane must have received so far.
	expected int
}

// subscribe creates a workspace whose events are sent to the n-th address of the receiver. The
// parameter way selects the behavior of the receiver.
func (h *WebhookStack) subscribe(ctx context.Context, way, lane string, n int) (*endpoint, error) {
	w, err := h.Stack.NewWorkspace(ctx, "bench deliveries", "1000")
	if err != nil {
		return nil, err
	}
	e := &endpoint{workspace: w, lane: lane, url: fmt.Sprintf("%s/%s/%s/%d", h.receiver.URLs[n%len(h.receiver.URLs)], way, lane, n)}
	e.source = &source{templates: h.templates, workspaceID: w.ID}
	var made struct {
		ID string `json:"id"`
	}
	err = w.API.Into(ctx, http.MethodPost, "/v1/webhook-subscriptions", map[string]any{"name": "bench", "url": e.url, "events": callEvents}, http.StatusCreated, &made)
	e.subscription = made.ID
	return e, err
}

func (e *endpoint) drop(ctx context.Context) error {
	return e.workspace.API.Into(ctx, http.MethodDelete, "/v1/webhook-subscriptions/"+e.subscription, nil, http.StatusOK, nil)
}

var errNoProcess = errors.New("the stack runs no webhook-dispatcher, or more than one")

func (h *WebhookStack) pid() (int, error) {
	pids := h.Stack.Processes()[dispatcher]
	if len(pids) != 1 {
		return 0, errNoProcess
	}
	return pids[0], nil
}

// stopDispatcher stops the dispatcher with SIGSTOP. restart kills the stopped process, and the
// stack then starts a new process.
func (h *WebhookStack) stopDispatcher() (restart func() error, err error) {
	pid, err := h.pid()
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("stop the dispatcher: %w", err)
	}
	return func() error { return syscall.Kill(pid, syscall.SIGKILL) }, nil
}

const openWork = `SELECT count(*) FROM webhook_dispatcher.delivery_queue`

// awaitSettled waits until the dispatcher has stored the results of all deliveries and its queue is
// empty.
func (h *WebhookStack) awaitSettled(ctx context.Context, within time.Duration) error {
	return kit.Until(ctx, within, "the dispatcher's queue is empty", func() (bool, error) {
		var open int
		err := h.db.QueryRow(ctx, openWork).Scan(&open)
		return open == 0, err
	})
}

// awaitArrivals waits until a lane has received the given number of requests. If no more requests
// arrive within the timeout, it returns nil, and the caller reports the missing requests.
func (h *WebhookStack) awaitArrivals(ctx context.Context, lane string, want int, timeout time.Duration) error {
	seen, moved := 0, time.Now()
	for seen < want && time.Since(moved) < timeout {
		count, err := h.receiver.Count(ctx, lane)
		if err != nil {
			return err
		}
		if count.Arrived > seen {
			seen, moved = count.Arrived, time.Now()
		}
		if err := webhookPause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func webhookPause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
