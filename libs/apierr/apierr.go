// Package apierr defines the errors that a client can act on: an HTTP status, a code of
// docs/reference/errors.md and one sentence. httpserver sends every other error as 500
// internal_error.
package apierr

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Error is an error response: {"error":{"code","message"}}.
type Error struct {
	Status  int
	Code    string
	Message string
	// RetryAfter is the Retry-After header, rounded up to seconds. 0 sends no header.
	RetryAfter time.Duration
	// Fields are added to "error" and to the top level of the body, for example existing_id.
	Fields map[string]string
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// New returns an error with the given HTTP status and code. The remaining parameters form the
// sentence, as in fmt.Sprintf.
func New(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Unprocessable returns a 422 with the given code.
func Unprocessable(code, format string, args ...any) *Error {
	return New(http.StatusUnprocessableEntity, code, format, args...)
}

// Validation returns 422 validation_error. The message starts with the name of the field.
func Validation(field, format string, args ...any) *Error {
	return Unprocessable(validationError, "%s %s", field, fmt.Sprintf(format, args...))
}

const validationError = "validation_error"

// Join returns one validation_error with the messages of all errors, so that a response names every
// invalid field. Nil errors are ignored. If some errors are not a validation_error, Join returns
// only the first of these.
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

// NotFound returns 404 not_found. kind is the kind of object, for example "call".
func NotFound(kind string) *Error {
	return New(http.StatusNotFound, "not_found", "No such %s in this workspace.", kind)
}

// Conflict returns an error with status 409 and the given code.
func Conflict(code, format string, args ...any) *Error {
	return New(http.StatusConflict, code, format, args...)
}

// Unavailable returns 503 unavailable with Retry-After. Use Unavailable only if the HTTP request
// changed nothing.
func Unavailable(what string) *Error {
	return unavailable("%s is not available at the moment. Nothing was changed; try again.", what)
}

// Unanswered returns 503 unavailable with Retry-After. Use Unanswered if a request was sent to
// another service or to the database, but its result is unknown.
func Unanswered(what string) *Error {
	return unavailable("%s did not answer. Whether the request took effect is not known: look, or repeat it with the same idempotency key.", what)
}

func unavailable(format, what string) *Error {
	err := New(http.StatusServiceUnavailable, "unavailable", format, what)
	err.RetryAfter = 2 * time.Second
	return err
}
