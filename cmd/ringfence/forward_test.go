package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/examples/receivers/go/webhook"
	"ringfence.dev/libs/testkit"
)

// developerServer verifies the signatures of webhooks with the code of the example receiver.
type developerServer struct {
	*httptest.Server
	status int
	faults chan error
}

func newDeveloperServer(t *testing.T, status int) *developerServer {
	t.Helper()
	d := &developerServer{status: status, faults: make(chan error, 10)}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d.faults <- webhook.Verify(fakeSecret, r.Header.Get("X-Service-Signature"), body, time.Now())
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(d.status)
	}))
	t.Cleanup(d.Close)
	return d
}

func TestListen_ForwardsVerifiedWebhooksAndReturnsTheStatus(t *testing.T) {
	for _, status := range []int{200, 307, 503} {
		f, d := newFakeStack(t), newDeveloperServer(t, status)
		out := listenUntil(t, `"hello"`, "--forward", d.URL+"/webhooks")
		for _, want := range []string{
			"forwarded to " + d.URL + "/webhooks", "signing secret is " + fakeSecret,
			fmt.Sprintf("signature verified, forwarded, answered %d in ", status),
		} {
			if !strings.Contains(out, want) {
				t.Errorf("status %d: output = %q, want it to contain %q", status, out, want)
			}
		}
		if err := <-d.faults; err != nil {
			t.Errorf("status %d: the developer's verification failed: %v", status, err)
		}
		if len(d.faults) != 0 {
			t.Errorf("status %d: the developer received more than one request", status)
		}
		f.wantStatus(status)
	}
}

func TestListen_DoesNotForwardForgedWebhooks(t *testing.T) {
	f, d := newFakeStack(t), newDeveloperServer(t, 200)
	f.forge = true
	out := listenUntil(t, `"hello"`, "--forward", d.URL)
	wantContains(t, "output", out, "REFUSED")
	wantNotContains(t, "output", out, "answered")
	f.wantStatus(http.StatusBadRequest)
	if len(d.faults) != 0 {
		t.Errorf("the developer received %d requests, want 0", len(d.faults))
	}
}

// The developer's server is stopped. The failed delivery is sent again later.
func TestListen_DeliveryFailsIfTheDevelopersServerDoesNotRespond(t *testing.T) {
	f, d := newFakeStack(t), newDeveloperServer(t, 200)
	d.Close()
	out := listenUntil(t, `"hello"`, "--forward", d.URL)
	wantContains(t, "output", out, "not forwarded: ")
	f.wantStatus(http.StatusBadGateway)
}

func TestListen_RefusesInvalidForwardAddresses(t *testing.T) {
	newFakeStack(t)
	for _, address := range []string{"localhost:3000", "/webhooks", "ftp://localhost", "http://"} {
		code, _, faults := runCommand(t, "listen", "--forward", address)
		wantCode(t, "listen --forward "+address, code, 1)
		wantContains(t, "stderr", faults, "is not an address such as http://localhost:3000/webhooks")
	}
}

// wantStatus waits for the response to the webhook.
func (f *fakeStack) wantStatus(want int) {
	f.t.Helper()
	testkit.Until(f.t, "the webhook has a response", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.statuses) > 0
	})
	if !slices.Equal(f.statuses, []int{want}) {
		f.t.Errorf("statuses of the webhook = %v, want [%d]", f.statuses, want)
	}
}
