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

// IsDown reports whether the error means that the database is unreachable, stopping or starting.
// The caller then responds 503 unavailable instead of 500.
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
	// Without a PgError, the server did not respond.
	return errors.As(err, &connecting) ||
		errors.As(err, &network) || // connection refused or reset, broken pipe, timeout
		errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, net.ErrClosed) ||
		errors.Is(err, puddle.ErrClosedPool) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
}

// IsUnanswered reports whether the failed statement was sent, and the connection broke before the
// response. It is then not known whether the statement, for example a COMMIT, took effect.
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
	return strings.HasPrefix(code, "08") || // connection exception
		slices.Contains([]string{
			"57P01", "57P02", "57P03", // the server stops or starts
			"57P05", "25P03", // the server ended an idle session or transaction
			"25006",                   // the server is a standby
			"57014",                   // the statement timed out
			"53100", "53200", "53300", // no disk space, memory or connection is left
		}, code)
}
