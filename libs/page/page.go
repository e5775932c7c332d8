// Package page implements list responses: the query parameters limit and starting_after, and the
// response body, newest item first (docs/reference/api/README.md#conventions).
package page

import (
	"net/url"
	"strconv"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
)

const (
	defaultLimit = 25
	maxLimit     = 100
)

// Request contains the parameters of one page.
type Request struct {
	// Limit is the maximum number of items, 1 to 100. The default is 25.
	Limit int
	// After is the id of the last item of the previous page. With uuid.Nil the page starts at the
	// newest item.
	After uuid.UUID
}

// Page is the body of a list response.
type Page[T any] struct {
	Data    []T  `json:"data"`
	HasMore bool `json:"has_more"`
}

// Parse reads limit and starting_after. Its error is a 422 validation_error that names the
// parameter.
func Parse(query url.Values) (Request, error) {
	asked := Request{Limit: defaultLimit}
	for _, name := range []string{"limit", "starting_after"} {
		if len(query[name]) > 1 {
			return Request{}, apierr.Validation(name, "must stand once in the query.")
		}
	}
	if query.Has("limit") {
		limit, err := strconv.ParseUint(query.Get("limit"), 10, 8) // Atoi would also accept a sign
		if err != nil || limit < 1 || limit > maxLimit {
			return Request{}, apierr.Validation("limit", "must be a whole number from 1 to %d.", maxLimit)
		}
		asked.Limit = int(limit)
	}
	if query.Has("starting_after") {
		text := query.Get("starting_after")
		id, err := uuid.Parse(text)
		if err != nil || len(text) != 36 || id == uuid.Nil {
			return Request{}, apierr.Validation("starting_after", "must be the id (a UUID) of the last item of the page before.")
		}
		asked.After = id
	}
	return asked, nil
}

// Below returns the id below which the page starts: After, or the highest id if After is uuid.Nil.
func (r Request) Below() uuid.UUID {
	if r.After == uuid.Nil {
		return uuid.Max
	}
	return r.After
}

// Rows returns the number of rows to read from the database: one more than Limit, to find out
// whether the list continues.
func (r Request) Rows() int { return r.Limit + 1 }

// Of returns a page with the first Limit rows, each converted by toItem. In JSON, Data is an empty
// list if there are no rows, never null.
func Of[Row, View any](r Request, rows []Row, toItem func(Row) View) Page[View] {
	cut := rows[:min(len(rows), r.Limit)]
	page := Page[View]{Data: make([]View, 0, len(cut)), HasMore: len(rows) > r.Limit}
	for _, row := range cut {
		page.Data = append(page.Data, toItem(row))
	}
	return page
}

// UnknownCursor returns the 422 for a starting_after that is not the id of an item of the
// workspace.
func UnknownCursor() error {
	return apierr.Validation("starting_after", "names no item of this list. Take the id of the last item of the page before.")
}
