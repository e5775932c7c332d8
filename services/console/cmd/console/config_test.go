package main

import (
	"strings"
	"testing"
)

func TestParse_RefusesPlainHTTPBeyondThisMachine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, url, addr    string
		published, refused bool
	}{
		{name: "https everywhere", url: "https://console.example.com", addr: ":8080"},
		{name: "loopback", url: "http://localhost:8082", addr: "127.0.0.1:8082"},
		{name: "IPv6 loopback", url: "http://[::1]:8082", addr: "[::1]:8082"},
		{name: "plain HTTP on a name", url: "http://console.example.com", addr: "127.0.0.1:8082", refused: true},
		{name: "plain HTTP on all addresses", url: "http://localhost:8082", addr: ":8082", refused: true},
		{name: "a container on this machine", url: "http://localhost:8082", addr: ":8082", published: true},
		{name: "a container with a name", url: "http://console.example.com", addr: ":8082", published: true, refused: true},
		{name: "a name that begins like loopback", url: "http://localhost.example.com", addr: "127.0.0.1:1", refused: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{GatewayURL: "http://127.0.0.1:8083", URL: tt.url, PublishedOnLoopback: tt.published}
			cfg.HTTP.Addr = tt.addr
			_, err := cfg.parse()
			if refused := err != nil; refused != tt.refused {
				t.Errorf("parse = %v, want refused %t", err, tt.refused)
			}
		})
	}
}

func TestParse_ReportsAllFaultsTogether(t *testing.T) {
	t.Parallel()
	_, err := Config{GatewayURL: "gateway:8083", URL: "console.example.com"}.parse()
	if err == nil {
		t.Fatal("parse = nil, want an error")
	}
	for _, variable := range []string{"GATEWAY_CONSOLE_URL", "CONSOLE_URL"} {
		if !strings.Contains(err.Error(), variable+" must be like") {
			t.Errorf("parse = %v, want it to name %s", err, variable)
		}
	}
}
