package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

// goalThrough limits the p50 of a request through the gateway. It is a multiple of the p50 of the
// same request that is sent directly to the service `calls`. The stack is idle except for one
// client.
const goalThrough = 2.0

// goalAdds limits the milliseconds that the gateway adds to the p50.
const goalAdds = 0.4

// measureGateway prints the time that the rate limit adds, and the time that the whole gateway
// adds. Each is the difference between two kinds of requests that are sent alternately.
func measureGateway(ctx context.Context, b *bench) error {
	w, err := b.stack.NewWorkspace(ctx, "bench gateway", "1000")
	if err != nil {
		return err
	}
	placed, err := w.Place(ctx, map[string]any{"to": phoneNumber(0), "scheduled_for": tomorrow()})
	if err != nil {
		return err
	}
	path := "/v1/call-requests/" + placed.ID
	direct, err := b.newDirectGet(w, path, http.StatusOK)
	if err != nil {
		return err
	}
	through, itself, err := alternate(ctx, b.each, b.withKey(w, path, http.StatusOK), direct)
	if err != nil {
		return err
	}
	at, alone := probe.Quantile(through, 0.5), probe.Quantile(itself, 0.5)
	times := float64(at) / float64(alone)
	fmt.Printf("  gateway adds             %8.2f ms   %s, at p50 (%s through it, %s to calls with a signed caller)\n",
		probe.MS(at-alone), probe.AtMost(probe.MS(at-alone), goalAdds, " ms"), probe.Spread(through), probe.Spread(itself))
	fmt.Printf("    of the time without it %8.1f x    %s\n", times, probe.AtMost(times, goalThrough, "x"))
	return b.limitCheck(ctx, w)
}

// limitCheck measures how long the gateway takes to count a request in the database. It compares
// responses with status 404, which are counted, to responses with status 429, which are not.
func (b *bench) limitCheck(ctx context.Context, w *kit.Workspace) error {
	other, err := b.stack.NewWorkspace(ctx, "bench limit", "0.01")
	if err != nil {
		return err
	}
	err = other.Admin.Into(ctx, "PATCH", "/admin/v1/workspaces/"+other.ID, map[string]any{"rate_limit_per_minute": 1}, http.StatusOK, nil)
	if err != nil {
		return err
	}
	err = kit.Until(ctx, 10*time.Second, "the key is over its limit", func() (bool, error) {
		status, _, err := other.API.Do(ctx, "GET", "/v1/nothing", nil)
		return status == http.StatusTooManyRequests, err
	})
	if err != nil {
		return err
	}
	// After a minute, the gateway would accept one request of the key that is over its limit.
	// Therefore the measurement takes at most half a minute.
	counted, refused, err := alternate(ctx, min(b.each, 30*time.Second),
		b.withKey(w, "/v1/nothing", http.StatusNotFound), b.withKey(other, "/v1/nothing", http.StatusTooManyRequests))
	if err != nil {
		return err
	}
	fmt.Printf("  rate-limit check adds    %8.2f ms   at p50 (%s counted in the database, %s not)\n",
		probe.MS(probe.Quantile(counted, 0.5)-probe.Quantile(refused, 0.5)), probe.Spread(counted), probe.Spread(refused))
	return nil
}

type repeatedGet struct {
	client  *http.Client
	address string
	want    int
	// value returns the value of the request header for each request.
	header string
	value  func() (string, error)
	// forwardedFor is the client address in X-Forwarded-For. If it is empty, the header is not
	// sent.
	forwardedFor string
}

func newAsker(address string, want int, header string, value func() (string, error)) *repeatedGet {
	client := &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}
	return &repeatedGet{client: client, address: address, want: want, header: header, value: value}
}

func (b *bench) withKey(w *kit.Workspace, path string, want int) *repeatedGet {
	return newAsker(b.stack.Demo.BaseURL+path, want, "Authorization", func() (string, error) { return "Bearer " + w.WriteKey, nil })
}

// newDirectGet returns a request to the service `calls` with a service token that is signed with
// the gateway's key. Each token is used for half a minute, so that the time to sign it is
// negligible.
func (b *bench) newDirectGet(w *kit.Workspace, path string, want int) (*repeatedGet, error) {
	var state struct {
		Ports       map[string]int    `json:"ports"`
		SigningKeys map[string]string `json:"signing_keys"`
	}
	data, err := os.ReadFile(filepath.Join(b.home, "state.json"))
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	if err != nil {
		return nil, fmt.Errorf("read the stack's state: %w", err)
	}
	keys, err := serviceauth.New(serviceauth.Gateway, serviceauth.Config{SigningKey: state.SigningKeys[serviceauth.Gateway]})
	if err != nil {
		return nil, err
	}
	caller := serviceauth.Caller{WorkspaceID: uuid.MustParse(w.ID), RequestID: uuid.Must(uuid.NewV7()), Access: serviceauth.Write}
	var token string
	var signed time.Time
	return newAsker(fmt.Sprintf("http://127.0.0.1:%d%s", state.Ports["calls"], path), want, serviceauth.CallerHeader, func() (string, error) {
		if time.Since(signed) > 30*time.Second {
			var err error
			if token, err = keys.SignCaller("calls", caller); err != nil {
				return "", err
			}
			signed = time.Now()
		}
		return token, nil
	}), nil
}

func (a *repeatedGet) ask(ctx context.Context) (time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.address, nil)
	if err != nil {
		return 0, err
	}
	value, err := a.value()
	if err != nil {
		return 0, err
	}
	request.Header.Set(a.header, value)
	if a.forwardedFor != "" {
		request.Header.Set("X-Forwarded-For", a.forwardedFor)
	}
	began := time.Now()
	response, err := a.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, err
	}
	if took := time.Since(began); response.StatusCode == a.want {
		return took, nil
	}
	return 0, fmt.Errorf("GET %s: %s, want %d", a.address, response.Status, a.want)
}

// alternate sends the requests a and b alternately for the given time. The first 50 responses of
// each request do not count.
func alternate(ctx context.Context, long time.Duration, a, b *repeatedGet) (ofA, ofB []time.Duration, err error) {
	const first = 50
	for began, n := time.Now(), 0; time.Since(began) < long || n <= 2*first; n++ {
		tookA, err := a.ask(ctx)
		if err != nil {
			return nil, nil, err
		}
		tookB, err := b.ask(ctx)
		if err != nil {
			return nil, nil, err
		}
		if n >= first {
			ofA, ofB = append(ofA, tookA), append(ofB, tookB)
		}
	}
	return ofA, ofB, nil
}
