// Package apierr owns the errors a customer can act on: a status, a machine code of the
// specification's part 7 (or contract.md §1) and one sentence. Every other error is a fault of
// ours and is shown as 500 internal_error by httpserver.
package apierr

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Error is one refusal as the client sees it: {"error":{"code","message"}}.
type Error struct {
	Status  int
	Code    string
	Message string
	// RetryAfter is sent as the Retry-After header, rounded up to seconds; zero sends none.
	RetryAfter time.Duration
	// Fields are added inside "error" and at the top level of the body (contact_exists' existing_id).
	Fields map[string]string
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// New makes an error with any status and code.
func New(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Unprocessable is a 422 with the given code.
func Unprocessable(code, format string, args ...any) *Error {
	return New(http.StatusUnprocessableEntity, code, format, args...)
}

// Validation is 422 validation_error; the message starts with the field it names.
func Validation(field, format string, args ...any) *Error {
	return Unprocessable(validationError, "%s %s", field, fmt.Sprintf(format, args...))
}

const validationError = "validation_error"

// Join returns one validation_error with the messages of all errors, so that a response names every
// invalid field. It ignores nil and returns nil if nothing is left. If one of the errors is not a
// validation_error, Join returns the first such error instead.
func Join(faults ...error) error {
	var messages []string
	for _, err := range faults {
		if err == nil {
			continue
		}
		fault, ok := errors.AsType[*Error](err)
		if !ok || fault.Code != validationError {
			return err
		}
		messages = append(messages, fault.Message)
	}
	if len(messages) == 0 {
		return nil
	}
	return Unprocessable(validationError, "%s", strings.Join(messages, " "))
}

// NotFound is 404 not_found.
func NotFound(thing string) *Error {
	return New(http.StatusNotFound, "not_found", "No such %s in this workspace.", thing)
}

// Conflict is a 409 with the given code.
func Conflict(code, format string, args ...any) *Error {
	return New(http.StatusConflict, code, format, args...)
}

// Unavailable is 503 unavailable with Retry-After: a peer or the database is down, and nothing was changed.
func Unavailable(what string) *Error {
	return away("%s is not available at the moment. Nothing was changed; try again.", what)
}

// Unanswered is 503 unavailable with Retry-After: it was asked, and the end was not seen.
func Unanswered(what string) *Error {
	return away("%s did not answer. Whether the request took effect is not known: look, or repeat it with the same idempotency key.", what)
}

func away(format, what string) *Error {
	err := New(http.StatusServiceUnavailable, "unavailable", format, what)
	err.RetryAfter = 2 * time.Second
	return err
}
