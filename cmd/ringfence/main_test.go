package main

import (
	"os"
	"testing"
	"time"
)

// TestMain sets the local time zone, because the commands print local times.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("EST", -5*60*60)
	os.Exit(m.Run())
}
