package inbox

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestIsInvalidValue_IsTrueOnlyForPermanentErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault error
		never bool
	}{
		{&pgconn.PgError{Code: "22P05"}, true},
		{&pgconn.PgError{Code: "54000"}, true},
		{&pgconn.PgError{Code: "23502"}, true},
		{&pgconn.PgError{Code: "23514", ConstraintName: "calls_status_check"}, true},
		// A retry succeeds, because the consumer creates the missing partition.
		{&pgconn.PgError{Code: "23514", TableName: "events_default"}, false},
		{&pgconn.PgError{Code: "40P01"}, false},
		{errors.New("no database"), false},
	} {
		if got := isInvalidValue(fmt.Errorf("insert: %w", tt.fault)); got != tt.never {
			t.Errorf("isInvalidValue(%+v) = %v", tt.fault, got)
		}
	}
}
