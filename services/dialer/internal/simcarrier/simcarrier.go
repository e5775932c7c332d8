// Package simcarrier implements a carrier that sends its requests over HTTP to the simulated
// telephone network (cmd/simcarrier).
package simcarrier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// requestTimeout limits one HTTP request. After a timeout, it is not known whether the simulated
// network has handled the request.
const requestTimeout = 5 * time.Second

// Config contains the settings of the carrier.
type Config struct {
	// URL is the base URL of the simulated network. Token is its access token, or empty if it needs
	// none.
	URL, Token string
	// TestOnly makes the carrier place only calls of test workspaces. It also changes the name that
	// Name returns.
	TestOnly bool
}

// Carrier is the simulated carrier.
type Carrier struct {
	cfg        Config
	client     *http.Client
	originated carrier.OriginatedCalls
}

// New returns a carrier without sending a request.
func New(cfg Config) *Carrier {
	return &Carrier{cfg: cfg, client: &http.Client{Transport: &http.Transport{
		// The HTTP client can continue to open a connection after its request has ended, so opening a
		// connection has a separate timeout.
		DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		// Proxy is not set, because requests must go directly to the simulated network, and not through a
		// proxy that environment variables name.
		MaxIdleConns: 256, MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute,
	}}}
}

// Name returns the name of the carrier, which is stored in fences.
func (c *Carrier) Name() string {
	if c.cfg.TestOnly {
		return dialqueue.TestCarrier
	}
	return "sim"
}

type eventBody struct {
	Seq      int64      `json:"seq"`
	At       time.Time  `json:"at"`
	Kind     string     `json:"kind"`
	CallID   uuid.UUID  `json:"call_id"`
	From     string     `json:"from"`
	To       string     `json:"to"`
	Inbound  bool       `json:"inbound"`
	Text     string     `json:"text"`
	Cause    string     `json:"cause"`
	By       string     `json:"by"`
	DialedAt *time.Time `json:"dialed_at"`
}

type statusBody struct {
	DialedAt   *time.Time `json:"dialed_at"`
	RingingAt  *time.Time `json:"ringing_at"`
	AnsweredAt *time.Time `json:"answered_at"`
	EndedAt    *time.Time `json:"ended_at"`
	Cause      string     `json:"cause"`
	By         string     `json:"by"`
}

func (k statusBody) callStatus() carrier.CallStatus {
	return carrier.CallStatus{
		DialedAt: k.DialedAt, RingingAt: k.RingingAt, AnsweredAt: k.AnsweredAt, EndedAt: k.EndedAt,
		Cause: callstate.Cause(k.Cause), ByUs: k.By == "dialer",
	}
}

// Originate dials a number. It sends the HTTP request only once, because the simulated network
// makes a phone ring for each request that it receives (cmd/simcarrier/README.md).
func (c *Carrier) Originate(ctx context.Context, o carrier.Originate) (dialedAt time.Time, err error) {
	if c.cfg.TestOnly && !o.Test {
		return time.Time{}, fmt.Errorf("originate %s of a live workspace: %w", o.CallID, carrier.ErrNotPermitted)
	}
	if !c.originated.AddIfNew(o.CallID) {
		return time.Time{}, fmt.Errorf("originate %s: %w", o.CallID, carrier.ErrAlreadyOriginated)
	}
	if !o.Permitted(ctx) {
		return time.Time{}, fmt.Errorf("originate %s: %w", o.CallID, carrier.ErrNotPermitted)
	}
	dialedAt = time.Now().UTC().Truncate(time.Microsecond)
	return dialedAt, c.originate(ctx, o, dialedAt)
}

func (c *Carrier) originate(ctx context.Context, o carrier.Originate, dialedAt time.Time) error {
	status, err := c.do(ctx, http.MethodPost, "/originate", map[string]any{
		"call_id": o.CallID, "from": o.From, "to": o.To, "dialed_at": dialedAt,
	}, nil)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return &carrier.Refused{Cause: callstate.NetworkOutOfOrder, NotSent: true, OperatorFault: true, Err: err}
	case err != nil:
		return fmt.Errorf("originate %s: %w", o.CallID, err)
	case status == http.StatusAccepted:
		return nil
	case status == http.StatusServiceUnavailable:
		return &carrier.Refused{Cause: callstate.SwitchCongestion, Err: fmt.Errorf("status %d", status)}
	case status == http.StatusUnauthorized:
		return &carrier.Refused{
			Cause: callstate.ProviderAuthFailed, OperatorFault: true,
			Err: errors.New("SIM_TOKEN is not the token of the simulated carrier"),
		}
	case status >= 400 && status < 500:
		return &carrier.Refused{Cause: callstate.CallRejected, Err: fmt.Errorf("status %d", status)}
	}
	return fmt.Errorf("originate %s: status %d", o.CallID, status)
}

// Answer answers an inbound call.
func (c *Carrier) Answer(ctx context.Context, callID uuid.UUID) error {
	status, err := c.do(ctx, http.MethodPost, "/answer", map[string]any{"call_id": callID}, nil)
	return checkStatus(status, err, "answer", callID)
}

// Hangup ends a call.
func (c *Carrier) Hangup(ctx context.Context, callID uuid.UUID) (carrier.CallStatus, error) {
	return c.hangUp(ctx, callID, "")
}

// Refuse ends an unanswered inbound call as busy.
func (c *Carrier) Refuse(ctx context.Context, callID uuid.UUID) (carrier.CallStatus, error) {
	return c.hangUp(ctx, callID, callstate.UserBusy)
}

// If the cause is empty, the simulated network uses the usual cause of a hang-up.
func (c *Carrier) hangUp(
	ctx context.Context, callID uuid.UUID, cause callstate.Cause,
) (carrier.CallStatus, error) {
	var k statusBody
	body := map[string]any{"call_id": callID, "cause": string(cause)}
	status, err := c.do(ctx, http.MethodPost, "/hangup", body, &k)
	return k.callStatus(), checkStatus(status, err, "hang up", callID)
}

// Find returns the carrier's status of a call.
func (c *Carrier) Find(ctx context.Context, callID uuid.UUID) (carrier.CallStatus, error) {
	var k statusBody
	status, err := c.do(ctx, http.MethodGet, "/calls/"+callID.String(), nil, &k)
	return k.callStatus(), checkStatus(status, err, "find", callID)
}

// Ready returns nil if the carrier can be reached.
func (c *Carrier) Ready(ctx context.Context) error {
	status, err := c.do(ctx, http.MethodGet, "/healthz", nil, nil)
	return checkStatus(status, err, "reach carrier for", uuid.Nil)
}

// Events implements carrier.EventStream.
func (c *Carrier) Events(ctx context.Context, after int64, maxWait time.Duration) (carrier.Batch, error) {
	var page struct {
		Feed string      `json:"feed"`
		Data []eventBody `json:"data"`
	}
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "wait": {strconv.FormatInt(maxWait.Milliseconds(), 10)}}
	ctx, cancel := context.WithTimeout(ctx, maxWait+requestTimeout)
	defer cancel()
	status, err := c.send(ctx, http.MethodGet, "/events?"+query.Encode(), nil, &page)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return carrier.Batch{}, fmt.Errorf("read carrier events after %d: %w", after, err)
	}
	batch := carrier.Batch{Stream: page.Feed, Events: make([]carrier.Event, 0, len(page.Data))}
	for _, e := range page.Data {
		batch.Events = append(batch.Events, carrier.Event{
			Seq: e.Seq, At: e.At, Kind: carrier.Kind(e.Kind), CallID: e.CallID, From: e.From, To: e.To, Inbound: e.Inbound,
			Text: e.Text, Cause: callstate.Cause(e.Cause), ByUs: e.By == "dialer", DialedAt: e.DialedAt,
		})
	}
	return batch, nil
}

func checkStatus(status int, err error, deed string, callID uuid.UUID) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", deed, callID, err)
	case status == http.StatusNotFound:
		return fmt.Errorf("%s %s: %w", deed, callID, carrier.ErrUnknownCall)
	case status >= 300:
		return fmt.Errorf("%s %s: status %d", deed, callID, status)
	}
	return nil
}

func (c *Carrier) do(ctx context.Context, method, path string, body, into any) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.send(ctx, method, path, body, into)
}

// send sends one HTTP request. It hides the type of the body, because the HTTP client could
// otherwise send the request twice.
func (c *Carrier) send(ctx context.Context, method, path string, body, into any) (int, error) {
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return 0, fmt.Errorf("encode: %w", err)
		}
		payload = io.NopCloser(bytes.NewReader(encoded))
	}
	req, err := http.NewRequestWithContext(ctx, method, c.cfg.URL+path, payload)
	if err != nil {
		return 0, fmt.Errorf("build request: %w", err)
	}
	if c.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if into != nil && resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			return 0, fmt.Errorf("decode answer: %w", err)
		}
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}
