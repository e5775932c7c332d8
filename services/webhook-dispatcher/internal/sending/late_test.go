package sending

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

// hungUp answers when its client has gone, as a server does whose handler gave up for that.
type hungUp struct{}

func (hungUp) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// TestSend_AnAnswerToOurHangingUpIsNone: a connection that is closed over TLS says so before it is closed, and what comes back between is no delivery.
func TestSend_AnAnswerToOurHangingUpIsNone(t *testing.T) {
	t.Parallel()
	c := &Client{http: &http.Client{Transport: hungUp{}}, timeout: time.Millisecond}
	answer := c.Send(t.Context(), delivery.Work{DeliveryID: uuid.New(), EventID: uuid.New(), URL: "https://203.0.113.1/", Secret: "secret", Body: []byte("{}"), Attempt: 1})
	if answer.Failure != delivery.Timeout || answer.Code != 0 {
		t.Errorf("Send = %+v, want a timeout", answer)
	}
}
