package inbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestMustPark_IsTrueAfter15MinutesOfConstraintViolations(t *testing.T) {
	t.Parallel()
	unique := &pgconn.PgError{Code: "23505", ConstraintName: "calls_pkey"}
	away := errors.New("connection refused")
	tests := []struct {
		name   string
		errs   []error // errors of the record, one every 5 minutes
		others bool    // other records are applied between two errors of the record
		want   bool
	}{
		{name: "unique violation for 15 minutes", errs: []error{unique, unique, unique, unique}, others: true, want: true},
		{name: "unique violation for 10 minutes", errs: []error{unique, unique, unique}, others: true},
		{name: "unique violation, no other record applied", errs: []error{unique, unique, unique, unique}},
		{name: "database unavailable in between", errs: []error{unique, unique, away, unique}, others: true},
		{name: "database unavailable", errs: []error{away, away, away, away, away}, others: true},
		{
			name: "timeout",
			errs: []error{
				context.DeadlineExceeded, context.DeadlineExceeded, context.DeadlineExceeded, context.DeadlineExceeded,
			},
			others: true,
		},
		{name: "shutdown", errs: repeat("57P01"), others: true},
		{name: "deadlock", errs: repeat("40P01"), others: true},
		{name: "missing column", errs: repeat("42703"), others: true},
		{name: "missing partition", errs: repeat("23514"), others: true},
		{name: "foreign key violation", errs: repeat("23503"), others: true, want: true},
		{name: "raised exception", errs: repeat("P0001"), others: true, want: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			consumer := &Consumer{violationTimeout: defaultViolationTimeout}
			r := violationSeries{consumer: consumer}
			now, got := time.Now(), false
			for _, err := range test.errs {
				got = r.mustPark(fmt.Errorf("handle: %w", err), now)
				now = now.Add(5 * time.Minute)
				if test.others {
					consumer.appliedCount.Add(1)
				}
			}
			if got != test.want {
				t.Errorf("isFinal = %v, want %v", got, test.want)
			}
		})
	}
}

func repeat(code string) []error {
	var errs []error
	for range 4 {
		errs = append(errs, &pgconn.PgError{Code: code})
	}
	return errs
}
