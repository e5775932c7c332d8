package httpserver_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
)

// TestWriteError_LogsTheCode is not parallel: it replaces the default logger.
func TestWriteError_LogsTheCode(t *testing.T) {
	var lines bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(&lines, nil)))
	defer slog.SetDefault(before)

	router := httpserver.NewRouter(nil)
	router.Post("/v1/calls", httpserver.Handle(func(http.ResponseWriter, *http.Request) error {
		return apierr.Unprocessable("recipient_dnd", "The number is opted out.")
	}))
	router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/calls", nil))

	var line map[string]any
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
		t.Fatalf("log = %q, want one line: %v", lines.String(), err)
	}
	if got := line["code"]; got != "recipient_dnd" {
		t.Errorf("code = %v, want recipient_dnd", got)
	}
	if got := line["status"]; got != 422.0 {
		t.Errorf("status = %v, want 422", got)
	}
}
