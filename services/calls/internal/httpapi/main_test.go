package httpapi_test

import (
	"flag"
	"io"
	"log/slog"
	"os"
	"testing"
)

// TestMain keeps the request lines out of the report, unless -v asks for everything.
func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Verbose() {
		slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	}
	os.Exit(m.Run())
}
