package contract

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// maxRevocation is the longest time after which a revoked session or key can still be used.
const maxRevocation = 5 * time.Second

// consoleStream opens the event stream of a workspace with a session.
func (c *client) consoleStream(t *testing.T, w *tenant) io.Reader {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.base+events, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Ringfence-Workspace", w.id)
	response, err := (&http.Client{Transport: transport("")}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	sharedstack.Equal(t, "status of the stream", response.StatusCode, http.StatusOK)
	return response.Body
}

// Each stream is open while its credential is revoked. After the stream has ended, a new request
// with the credential must be refused.
func TestRevocation_ClosesOpenEventStreamsWithinFiveSeconds(t *testing.T) {
	w := workspace(t)
	in := []string{"Ringfence-Workspace", w.id}
	for _, row := range []struct {
		name string
		open func() (stream io.Reader, revoke func(), refused func() bool)
	}{
		{name: "sign-out", open: func() (io.Reader, func(), func() bool) {
			c := person(t)
			return c.consoleStream(t, w),
				func() { c.want(t, 204, "DELETE", "/console/v1/sessions/current", nil) },
				func() bool { return c.send(t, "GET", "/v1/wallet", nil, in...).status == http.StatusUnauthorized }
		}},
		{name: "sign-out everywhere, in another session", open: func() (io.Reader, func(), func() bool) {
			c, other := person(t), person(t)
			return c.consoleStream(t, w),
				func() { other.want(t, 204, "DELETE", "/console/v1/sessions", nil) },
				func() bool { return c.send(t, "GET", "/v1/wallet", nil, in...).status == http.StatusUnauthorized }
		}},
		{name: "API key", open: func() (io.Reader, func(), func() bool) {
			c, id := w.key(t, "read")
			return openStream(t, c, openapi.StreamEventsParams{}).Body,
				func() { w.operator.want(t, 200, "DELETE", w.admin+"/api-keys/"+id, nil) },
				func() bool { return c.send(t, "GET", "/v1/wallet", nil).status == http.StatusUnauthorized }
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			stream, revoke, refused := row.open()
			lines := bufio.NewReader(stream)
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatalf("first line of the stream: %v", err)
			}
			ended := make(chan time.Time, 1)
			go func() {
				_, _ = io.Copy(io.Discard, lines)
				ended <- time.Now()
			}()
			revoke()
			revokedAt := time.Now()
			select {
			case at := <-ended:
				took := at.Sub(revokedAt)
				t.Logf("the stream ended %s after the response to the revocation", took.Round(time.Millisecond))
				if took > maxRevocation {
					t.Errorf("the stream ended %s after the revocation, want at most %s", took, maxRevocation)
				}
			case <-time.After(kit.HangTimeout):
				t.Fatal("the stream did not end")
			}
			if !refused() {
				t.Error("a new request with the revoked credential is accepted")
			}
		})
	}
}
