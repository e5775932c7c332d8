package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/proxy"
)

// streamOf makes the fake webhook-dispatcher respond with the texts from the channel. It closes
// `ended` at the end of the response.
func (r *rig) streamOf(texts <-chan string) (ended chan struct{}) {
	ended = make(chan struct{})
	r.answers(func(w http.ResponseWriter, h receivedRequest) bool {
		if h.owner != proxy.Webhooks {
			return false
		}
		defer close(ended)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		control := http.NewResponseController(w)
		for {
			select {
			case text, more := <-texts:
				if !more {
					return true
				}
				if _, err := io.WriteString(w, text); err != nil {
					return true
				}
			// only a failed write shows that the gateway has closed the request
			case <-time.After(10 * time.Millisecond):
				if _, err := io.WriteString(w, ":\n\n"); err != nil {
					return true
				}
			}
			if control.Flush() != nil {
				return true
			}
		}
	})
	return ended
}

func (r *rig) openStream(ctx context.Context, key string, header ...string) *http.Response {
	r.t.Helper()
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodGet,
		r.public.URL+"/v1/events?types=call.completed",
		http.NoBody,
	)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// Each message must arrive before the next message is sent. A gateway that buffers would fail the
// test.
func TestStream_EachMessageIsForwardedImmediately(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "read")
	texts := make(chan string)
	r.streamOf(texts)
	last := uuid.NewString()
	response := r.openStream(t.Context(), key, "Last-Event-ID", last, "X-Ringfence-Caller", "mine")
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type = %q, want text/event-stream", got)
	}
	if response.Header.Get("RateLimit") == "" {
		t.Error("the response has no rate-limit headers")
	}
	lines := bufio.NewScanner(response.Body)
	for _, text := range []string{"data: 1", "data: 2", "data: 3"} {
		texts <- text + "\n\n"
		for lines.Scan() && (lines.Text() == "" || lines.Text() == ":") {
		}
		if lines.Text() != text {
			t.Fatalf("line = %q, want %q", lines.Text(), text)
		}
	}
	close(texts) // the fake service ends the stream, for example because its process stops
	rest, err := io.ReadAll(response.Body)
	if err != nil {
		t.Errorf("end of the stream: %v, want none", err)
	}
	_ = rest
	received := r.requestsTo(proxy.Webhooks)[0]
	if got := received.header.Get("Last-Event-Id"); got != last {
		t.Errorf("Last-Event-Id = %q, want %q", got, last)
	}
	if received.uri != "/v1/events?types=call.completed" {
		t.Errorf("uri = %q", received.uri)
	}
}

func TestStream_EndsWhenTheClientDisconnects(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "read")
	ended := r.streamOf(make(chan string))
	ctx, cancel := context.WithCancel(t.Context())
	r.openStream(ctx, key)
	cancel()
	select {
	case <-ended:
	case <-time.After(testkit.Timeout):
		t.Fatal("the request to the owner did not end")
	}
}

// The gateway checks the key every 3 s.
func TestStream_EndsWhenTheKeyIsRevoked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	workspace := r.workspace("")
	key, id := r.key(workspace, "read")
	ended := r.streamOf(make(chan string))
	response := r.openStream(t.Context(), key)
	r.operator("DELETE", "/admin/v1/workspaces/"+workspace+"/api-keys/"+id, "")
	revokedAt := time.Now()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Errorf("end of the stream: %v, want none", err)
	}
	if took := time.Since(revokedAt); took > maxRevocation {
		t.Errorf("the stream ended %s after the revocation, want at most %s", took, maxRevocation)
	}
	<-ended
}

func TestStream_RefusalOfTheDispatcherIsForwarded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, _ := r.key(r.workspace(""), "read")
	r.answers(func(w http.ResponseWriter, _ receivedRequest) bool {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"error":{"code":"rate_limited","message":"Too many."}}`)
		return true
	})
	got := r.customer("GET", "/v1/events", key, "")
	if got.status != http.StatusTooManyRequests {
		t.Errorf("status = %d, want 429", got.status)
	}
	if got.code() != "rate_limited" {
		t.Errorf("code = %q, want rate_limited", got.code())
	}
	if after := got.header.Get("Retry-After"); after != "5" {
		t.Errorf("Retry-After = %q, want 5", after)
	}
	if !slices.Equal(got.header.Values("Content-Type"), []string{"application/json"}) {
		t.Errorf("Content-Type = %q", got.header.Values("Content-Type"))
	}
}

// webhook-dispatcher sends turns only if the caller token permits it.
func TestConsole_RoleAndSettingDecideWhetherAStreamHasTurns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	with, without := r.workspace(`"features":{"transcripts":true}`), r.workspace("")
	key, _ := r.key(with, "write")
	operator := r.operatorSession()
	session := func(workspace string, role people.Role) string {
		token, _ := r.memberSession(workspace, role)
		return token
	}
	var caller serviceauth.Caller
	r.answers(func(w http.ResponseWriter, request receivedRequest) bool {
		caller = request.caller
		w.Header().Set("Content-Type", "text/event-stream")
		return true
	})
	for _, row := range []struct {
		name, workspace, token, reason string
		want                           bool
	}{
		{name: "viewer", workspace: with, token: session(with, people.Viewer)},
		{name: "operator without a reason", workspace: with, token: operator},
		{name: "operator with a reason", workspace: with, token: operator, reason: "complaint 7", want: true},
		{name: "developer", workspace: with, token: session(with, people.Developer), want: true},
		{name: "compliance", workspace: with, token: session(with, people.Compliance), want: true},
		{name: "owner of a workspace without transcripts", workspace: without, token: session(without, people.Owner)},
	} {
		header := http.Header{"Ringfence-Workspace": {row.workspace}}
		if row.reason != "" {
			header.Set("Ringfence-Reason", row.reason)
		}
		if got := send(t, "GET", r.console.URL+"/v1/events", row.token, "", header); got.status != http.StatusOK {
			t.Fatalf("%s: status = %d %s, want 200", row.name, got.status, got.body)
		}
		if caller.Turns != row.want {
			t.Errorf("%s: turns = %t, want %t", row.name, caller.Turns, row.want)
		}
	}
	if got := r.customer("GET", "/v1/events", key, ""); got.status != http.StatusOK {
		t.Fatalf("API key: status = %d, want 200", got.status)
	}
	if caller.Turns {
		t.Error("API key: turns = true, want false")
	}
}

// A stream of turns must end when the person's role changes, and when the workspace's transcripts
// are switched off.
func TestConsole_StreamWithTurnsEndsIfTheRoleOrSettingChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.newConsole()
	changed, muted := r.workspace(`"features":{"transcripts":true}`), r.workspace(`"features":{"transcripts":true}`)
	developer, person := r.memberSession(changed, people.Developer)
	owner, _ := r.memberSession(muted, people.Owner)
	r.answers(func(w http.ResponseWriter, h receivedRequest) bool {
		if h.owner != proxy.Webhooks {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for control := http.NewResponseController(w); ; time.Sleep(10 * time.Millisecond) {
			if _, err := io.WriteString(w, ":\n\n"); err != nil || control.Flush() != nil {
				return true // the gateway has closed the request
			}
		}
	})
	var streams []*http.Response
	for token, workspace := range map[string]string{developer: changed, owner: muted} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.console.URL+"/v1/events", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Ringfence-Workspace", workspace)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		streams = append(streams, response)
	}
	const promote = `UPDATE memberships SET role = 'owner' WHERE person_id = $1`
	if _, err := r.pool.Exec(t.Context(), promote, person); err != nil {
		t.Fatal(err)
	}
	off := r.operator("PATCH", "/admin/v1/workspaces/"+muted, `{"features":{"transcripts":false}}`)
	if off.status != http.StatusOK {
		t.Fatalf("PATCH workspace = %d %s, want 200", off.status, off.body)
	}
	for _, stream := range streams {
		if _, err := io.Copy(io.Discard, stream.Body); err != nil {
			t.Logf("end of a stream: %v", err)
		}
	}
}
