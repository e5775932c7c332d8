package main

import (
	"strings"
	"testing"
	"time"
)

// Trunks send their BYE to the advertised address, so it must be reachable.
func TestAdvertisedAddress_DefaultIsTheFirstListener(t *testing.T) {
	t.Parallel()
	const missing = "SIP_ADVERTISED_ADDR is missing"
	tests := []struct {
		name      string
		config    sipConfig
		want      string
		wantError string
	}{
		{name: "first listener has an address", config: sipConfig{UDP: "192.0.2.10:5060", TLS: "192.0.2.11:5061"},
			want: "192.0.2.10"},
		{name: "only a TLS listener", config: sipConfig{TLS: "[2001:db8::1]:5061"}, want: "2001:db8::1"},
		{name: "SIP_ADVERTISED_ADDR is set", config: sipConfig{UDP: "0.0.0.0:5060", Advertised: "203.0.113.7"},
			want: "203.0.113.7"},
		{name: "listener at 0.0.0.0", config: sipConfig{UDP: "0.0.0.0:5060"}, wantError: missing},
		{name: "listener at ::", config: sipConfig{UDP: "[::]:5060"}, wantError: missing},
		{name: "listener with only a port", config: sipConfig{UDP: ":5060"}, wantError: missing},
		{name: "listener at a host name", config: sipConfig{UDP: "sip.example.com:5060"}, wantError: missing},
		{name: "SIP_ADVERTISED_ADDR is malformed", config: sipConfig{Advertised: "here"},
			wantError: "read SIP_ADVERTISED_ADDR"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := test.config.advertisedAddress()
			if test.wantError != "" {
				if err == nil {
					t.Fatalf("advertised address = %s, want the error %q", got, test.wantError)
				}
				if !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("error = %q, want %q in it", err, test.wantError)
				}
				return
			}
			if err != nil {
				t.Fatalf("error = %v, want the address %s", err, test.want)
			}
			if got.String() != test.want {
				t.Errorf("advertised address = %s, want %s", got, test.want)
			}
		})
	}
}

// Kafka can deliver a call request again after its row was deleted. By then the request must be
// older than QUEUE_LIMIT, so that it is not dialed again (ADR 12).
func TestValidate_QueueLimitMustBeShorterThanRetention(t *testing.T) {
	t.Parallel()
	tests := []struct {
		limit   time.Duration
		refused bool
	}{
		{limit: 24 * time.Hour},
		{limit: 60*24*time.Hour - time.Second},
		{limit: 60 * 24 * time.Hour, refused: true},
		{limit: 90 * 24 * time.Hour, refused: true},
		{limit: 0, refused: true},
	}
	for _, test := range tests {
		t.Run(test.limit.String(), func(t *testing.T) {
			t.Parallel()
			err := spec().Check(Config{QueueLimit: test.limit})
			if !test.refused {
				if err != nil {
					t.Errorf("error = %v, want nil", err)
				}
				return
			}
			if err == nil {
				t.Fatal("error = nil, want a refusal")
			}
			for _, want := range []string{"QUEUE_LIMIT (" + test.limit.String() + ")", "1440h", "Set a shorter QUEUE_LIMIT"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error = %q, want %q in it", err, want)
				}
			}
		})
	}
}
