package pg

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// IsDown says whether the error means that the database cannot be reached or is ending or
// starting, so that the caller answers 503 unavailable rather than 500.
func IsDown(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var fault *pgconn.PgError
	if errors.As(err, &fault) {
		return isDownState(fault.Code)
	}
	var connecting *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connecting) || // nothing the server said, else a PgError would be inside
		errors.As(err, &network) || // refused, reset, broken pipe, timed out
		errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, net.ErrClosed) ||
		errors.Is(err, puddle.ErrClosedPool) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
}

// IsUnanswered says whether the statement that failed with err, a COMMIT perhaps, may have taken effect all the same: it was on its
// way when the database went.
func IsUnanswered(err error) bool {
	var fault *pgconn.PgError
	var connecting *pgconn.ConnectError
	var network *net.OpError
	switch {
	case !IsDown(err), errors.As(err, &fault), errors.As(err, &connecting), errors.Is(err, puddle.ErrClosedPool):
		return false
	default:
		return !errors.As(err, &network) || network.Op != "dial"
	}
}

func isDownState(code string) bool {
	// Ending, crashed, starting, dropped while idle in a transaction; too many connections; out of disk or memory; a
	// statement that the server gave up on; a standby where the primary should be: outages, and nothing of the request's making.
	return strings.HasPrefix(code, "08") ||
		slices.Contains([]string{"57P01", "57P02", "57P03", "57P05", "25P03", "25006", "57014", "53100", "53200", "53300"}, code)
}
