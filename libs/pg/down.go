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

// IsDown reports whether err means that the database is unreachable, stopping or starting. The
// caller then responds 503 unavailable instead of 500.
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
	return errors.As(err, &connecting) || // no response of the server, otherwise it would contain a PgError
		errors.As(err, &network) || // refused, reset, broken pipe, timeout
		errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, net.ErrClosed) ||
		errors.Is(err, puddle.ErrClosedPool) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
}

// IsUnanswered reports whether the statement that failed with err, for example a COMMIT, may have
// taken effect anyway: it was sent, and the connection broke before the response.
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
	// Stopping, crashed, starting, ended while idle in a transaction; too many connections; out of
	// disk or memory; a statement timeout; a standby instead of the primary.
	return strings.HasPrefix(code, "08") ||
		slices.Contains([]string{"57P01", "57P02", "57P03", "57P05", "25P03", "25006", "57014", "53100", "53200", "53300"}, code)
}
