package rejoining_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestAwait_SaysThatItHolds: a hold may take minutes, and begins with why. The log is the process's, so it runs alone.
func TestAwait_SaysThatItHolds(t *testing.T) {
	for _, tt := range []struct {
		name, timeline, want string
		knows                bool
	}{
		{"the timeline of its mark, and older", "its own", "level=ERROR msg=\"the database is older than what was told: it is on hold until dial-events.v1 is reconciled\" unknown=1", false},
		{"another timeline, and older", "another", "level=ERROR msg=\"the database is older than what was told: it is on hold until dial-events.v1 is reconciled\" unknown=1", false},
		{"another timeline, and nothing is missing", "another", "level=WARN msg=\"the database has become another: it is on hold until dial-events.v1 is gone through\"", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, id := newRestored(t), uuid.New()
			r.marked(time.Hour, tt.timeline)
			if r.order(id); tt.knows {
				r.told(rescheduled(id, time.Now().Add(-time.Hour)))
			} else {
				r.told(called(id, uuid.New(), "completed", 3))
			}
			var said bytes.Buffer
			before := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
			defer slog.SetDefault(before)
			r.await()
			begins, ends := strings.Index(said.String(), tt.want), strings.Index(said.String(), "the hold is over")
			if begins < 0 {
				t.Errorf("begins = %v, want at least 0; said.String() = %s", begins, said.String())
			} else if ends < begins {
				t.Errorf("ends = %v, want at least %v; said.String() = %s", ends, begins, said.String())
			}
		})
	}
}
