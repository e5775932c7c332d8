package people

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"ringfence.dev/libs/testkit"
)

func TestCheckName_RefusesNamesThatLookLikeOtherNames(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"Grace Hopper": true, "Jürgen Groß": true, "李雷": true, "": false, " \t": false,
		"Grace\u202eredaer": false, "Local\u200b operator": false, "a\nb": false, "a\x00": false, "\ufeffa": false,
	} {
		if err := CheckName(name); (err == nil) != valid {
			t.Errorf("CheckName(%q) = %v, valid: %t", name, err, valid)
		}
	}
}

func TestCutText_RemovesInvisibleCharacters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\u202eLocal\x00 \u200boperator\n": "Local operator", "a\xffb": "ab", "Jürgen Wolfgang": "Jürgen Wolfgan",
	} {
		if got := cutText(text, 14); got != want {
			t.Errorf("cutText(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestOIDC_ConcurrentSignInsShareOneDiscovery(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	answer := make(chan struct{})
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		<-answer
		fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":"https://id.example.com/auth"}`, server.URL)
	}))
	t.Cleanup(server.Close)
	o := NewOIDC(OIDCConfig{Issuer: server.URL, ClientID: "ringfence"})
	const waiting = 5
	ended := make(chan error, waiting)
	for range waiting {
		go func() {
			_, _, err := o.Start(context.Background(), false)
			ended <- err
		}()
	}
	testkit.Until(t, "the provider was asked", func() bool { return requests.Load() == 1 })
	// If the client disconnects, Start must not wait for the provider.
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := o.Start(canceled, false); !errors.Is(err, context.Canceled) {
		t.Errorf("Start = %v, want %v", err, context.Canceled)
	}
	close(answer)
	for range waiting {
		if err := <-ended; err != nil {
			t.Errorf("Start = %v", err)
		}
	}
	if _, _, err := o.Start(t.Context(), false); err != nil {
		t.Errorf("Start after the discovery = %v", err)
	}
	if got := requests.Load(); got != 1 {
		t.Errorf("requests to the provider = %d, want 1", got)
	}
}
