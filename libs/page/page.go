// Package page owns the list contract of the specification's part 4: limit, starting_after and
// the Page body, newest first.
package page

import (
	"net/url"
	"strconv"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
)

const (
	standard = 25
	most     = 100
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
func Parse(query url.Values) (Request, error) {
	asked := Request{Limit: standard}
	for _, name := range []string{"limit", "starting_after"} {
		if len(query[name]) > 1 {
			return Request{}, apierr.Validation(name, "must stand once in the query.")
		}
	}
	if query.Has("limit") {
		limit, err := strconv.ParseUint(query.Get("limit"), 10, 8) // digits alone: Atoi would take a sign
		if err != nil || limit < 1 || limit > most {
			return Request{}, apierr.Validation("limit", "must be a whole number from 1 to %d.", most)
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

// Below is the first id beyond the page's newest item: the cursor, or beyond every id when there is none.
func (r Request) Below() uuid.UUID {
	if r.After == uuid.Nil {
		return uuid.Max
	}
	return r.After
}

// Rows is how many rows a store should read: one more than the page holds.
func (r Request) Rows() int { return r.Limit + 1 }

// Of cuts rows (read with Rows) to a page and renders each item. Data is never null in JSON.
func Of[Row, View any](r Request, rows []Row, view func(Row) View) Page[View] {
	cut := rows[:min(len(rows), r.Limit)]
	page := Page[View]{Data: make([]View, 0, len(cut)), HasMore: len(rows) > r.Limit}
	for _, row := range cut {
		page.Data = append(page.Data, view(row))
	}
	return page
}

// UnknownCursor is the 422 for a starting_after that names nothing in the workspace.
func UnknownCursor() error {
	return apierr.Validation("starting_after", "names no item of this list. Take the id of the last item of the page before.")
}
