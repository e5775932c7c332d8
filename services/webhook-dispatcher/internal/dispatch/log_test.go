package dispatch

import (
	"testing"
	"time"

	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

func TestLogAttrs_OmitsMissingFailureAndRetry(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		response    deliveries.Response
		result      deliveries.Result
		wantFailure string
		wantRetryIn string
	}{
		{name: "delivered", response: deliveries.Response{Code: 204}},
		{name: "failed with a retry", response: deliveries.Response{Code: 500, Failure: "http_5xx"},
			result:      deliveries.Result{Delay: time.Minute},
			wantFailure: "http_5xx", wantRetryIn: "1m0s"},
		{name: "failed without a retry", response: deliveries.Response{Failure: "timeout"}, wantFailure: "timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := map[string]string{}
			for _, attr := range logAttrs(deliveries.Work{}, tt.response, tt.result) {
				got[attr.Key] = attr.Value.String()
			}
			failure, logged := got["failure"]
			if failure != tt.wantFailure {
				t.Errorf("failure = %q, want %q", failure, tt.wantFailure)
			}
			if want := tt.wantFailure != ""; logged != want {
				t.Errorf("failure is logged = %v, want %v", logged, want)
			}
			retryIn, logged := got["retry_in"]
			if retryIn != tt.wantRetryIn {
				t.Errorf("retry_in = %q, want %q", retryIn, tt.wantRetryIn)
			}
			if want := tt.wantRetryIn != ""; logged != want {
				t.Errorf("retry_in is logged = %v, want %v", logged, want)
			}
		})
	}
}
