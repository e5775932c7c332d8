// Package page owns the list contract of the specification's part 4: limit, starting_after and
// the Page body, newest first.
package page

import (
	"net/url"

	"github.com/google/uuid"
)

// Request is one page asked for.
type Request struct {
	// Limit is 1 to 100, 25 unless asked.
	Limit int
	// After is the id of the last item of the page before; uuid.Nil: from the newest.
	After uuid.UUID
}

// Page is the body of every list response.
type Page[T any] struct {
	Data    []T  `json:"data"`
	HasMore bool `json:"has_more"`
}

// Parse reads limit and starting_after. Errors are 422 validation_error naming the parameter.
func Parse(query url.Values) (Request, error) { panic("unwritten") }

// Rows is how many rows a store should read: one more than the page holds.
func (r Request) Rows() int { return r.Limit + 1 }

// Of cuts rows (read with Rows) to a page and renders each item.
func Of[Row, View any](r Request, rows []Row, view func(Row) View) Page[View] { panic("unwritten") }

// UnknownCursor is the 422 for a starting_after that names nothing in the workspace.
func UnknownCursor() error { panic("unwritten") }
