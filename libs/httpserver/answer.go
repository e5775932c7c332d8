package httpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/telemetry"
)

// WriteJSON sends a response with the given status and body. If the body cannot be encoded,
// WriteJSON sends nothing and returns the error.
func WriteJSON(w http.ResponseWriter, status int, body any) error {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(encoded.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(encoded.Bytes()) // Write fails only if the client has disconnected
	return nil
}

// WriteError sends the error body. An *apierr.Error is sent unchanged. If the database or another
// service is unavailable, the response is 503 unavailable. Any other error is logged and sent as
// 500 internal_error.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	writeRefusal(w, r, refusal(r, err))
}

// writeRefusal writes the error body. The error code becomes an attribute of the request's log line
// and span.
func writeRefusal(w http.ResponseWriter, r *http.Request, shown *apierr.Error) {
	telemetry.Annotate(r.Context(), "code", shown.Code)
	if shown.RetryAfter > 0 {
		seconds := (shown.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	// RFC 9110 section 11.6.1 requires the authentication scheme in a 401
	if shown.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="ringfence"`)
	}
	inner := map[string]string{"code": shown.Code, "message": shown.Message}
	body := map[string]any{}
	for name, value := range shown.Fields {
		inner[name], body[name] = value, value
	}
	body["error"] = inner
	if err := WriteJSON(w, shown.Status, body); err != nil {
		slog.ErrorContext(r.Context(), "error response not encoded", "error", err)
	}
}

func refusal(r *http.Request, err error) *apierr.Error {
	var shown *apierr.Error
	if errors.As(err, &shown) {
		return shown
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) && errors.As(TooLarge(), &shown) {
		return shown
	}
	ctx := r.Context()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		slog.InfoContext(ctx, "client disconnected before the response")
		return apierr.Unavailable("The service")
	}
	if isDown(err) {
		slog.WarnContext(ctx, "database or service unavailable", "error", err)
		// It is unknown whether the database executed the failed statement, for example a COMMIT.
		// The client must check the result before it repeats the request.
		if pg.IsUnanswered(err) && r.Method != http.MethodGet && r.Method != http.MethodHead {
			return apierr.Unanswered("The service")
		}
		return apierr.Unavailable("The service")
	}
	slog.ErrorContext(ctx, "HTTP request failed with an internal error", "error", err)
	return internal()
}

func isDown(err error) bool {
	var asked *connect.Error
	if errors.As(err, &asked) {
		return asked.Code() == connect.CodeUnavailable || asked.Code() == connect.CodeDeadlineExceeded
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || pg.IsDown(err)
}

func internal() *apierr.Error {
	return apierr.New(http.StatusInternalServerError, "internal_error", "Something went wrong on our side. Try again; if it goes on, tell us when it happened.")
}
