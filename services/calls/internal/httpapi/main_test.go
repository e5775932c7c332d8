package httpapi_test

import (
	"flag"
	"io"
	"log/slog"
	"os"
	"testing"
)

// TestMain hides the request logs unless -v is set.
func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Verbose() {
		slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	}
	os.Exit(m.Run())
}
