// Package delivering measures the delivery of webhooks through the whole stack: the real webhook-dispatcher behind its Kafka, its Postgres
// and its guard, beside bare POSTs to the same receiver. README.md of the bench says what each figure is.

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

// dispatcher is the service that is measured, and its program's name.
const dispatcher = "webhook-dispatcher"

// addresses is how many hosts the receiver has: one for the healthy endpoint and ten for those that hang.
const addresses = 11

// WebhookSetup is what the bench has.
type WebhookSetup struct {
	Stack *kit.Stack
	// Home is the stack's folder, DB a superuser's URL of its database.
	Home, DB string
	// CAFile and KeyFile are the authority that the stack's services trust.
	CAFile, KeyFile string
	// Each is how long a measurement runs, Soak how long the soak does.
	Each, Soak time.Duration
	// Records is how many deliveries the backlog has.
	Records int
	// Profile names the file that the dispatcher's CPU profile under load is written to; empty: none is made.
	Profile string
}

// WebhookStack is what the measurements work with.
type WebhookStack struct {
	WebhookSetup
	receiver *Receiver
	bus      *kafka.Client
	db       *pgx.Conn
	// private is the dispatcher's private port, broker the address of Kafka.
	private, broker string
	// postmaster is the process whose children the backends are.
	postmaster string
	templates  []template
	// backlog is the rate that Deliveries found; zero until it ran.
	backlog float64
	serial  atomic.Int64
}

// OpenWebhooks starts the receiver and lets the stack make one call, whose events everything else is copied from.
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
	if h.receiver, err = Start(setup.CAFile, setup.KeyFile, addresses); err != nil {
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

// Close ends the receiver and the connections.
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

// ports are those that the stack chose for its inner parts.
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

// lane is one name at the receiver that nothing was sent to before.
func (h *WebhookStack) lane() string { return fmt.Sprintf("lane%d", h.serial.Add(1)) }

// endpoint is a subscription of a workspace of its own.
type endpoint struct {
	workspace    *kit.Workspace
	subscription string
	lane, url    string
	source       *source
	// expected is how much its lane was sent so far.
	expected int
}

// subscribe makes a workspace whose events go to the n-th address of the receiver, which treats them the given way.
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

// drop deletes the subscription and with it its open work.
func (e *endpoint) drop(ctx context.Context) error {
	return e.workspace.API.Into(ctx, http.MethodDelete, "/v1/webhook-subscriptions/"+e.subscription, nil, http.StatusOK, nil)
}

var errNoProcess = errors.New("the stack runs no webhook-dispatcher, or more than one")

// pid is the dispatcher's process.
func (h *WebhookStack) pid() (int, error) {
	pids := h.Stack.Processes()[dispatcher]
	if len(pids) != 1 {
		return 0, errNoProcess
	}
	return pids[0], nil
}

// halt stops the dispatcher where it stands. again ends it, and the stack starts a new one: as after a crash, with all that came
// meanwhile before it.
func (h *WebhookStack) halt() (again func() error, err error) {
	pid, err := h.pid()
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("stop the dispatcher: %w", err)
	}
	return func() error { return syscall.Kill(pid, syscall.SIGKILL) }, nil
}

const openWork = `SELECT count(*) FROM webhook_dispatcher.webhook_queue`

// settled waits until the dispatcher has written down all that it sent, and nothing is left to send.
func (h *WebhookStack) settled(ctx context.Context, within time.Duration) error {
	return kit.Until(ctx, within, "the dispatcher's queue is empty", func() (bool, error) {
		var open int
		err := h.db.QueryRow(ctx, openWork).Scan(&open)
		return open == 0, err
	})
}

// awaitArrivals waits until so many POSTs came to a lane; when nothing more comes for the patience it gives up without an error: what is
// missing is a figure.
func (h *WebhookStack) awaitArrivals(ctx context.Context, lane string, want int, patience time.Duration) error {
	seen, moved := 0, time.Now()
	for seen < want && time.Since(moved) < patience {
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
