package testkit

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// Page is a page of a list.
type Page struct {
	IDs  []uuid.UUID
	More bool
}

// List is the list under test. Its functions must fail the test if an error occurs.
type List struct {
	// Fetch reads a page. lastID is the id of the last item of the previous page, or uuid.Nil for
	// the first page.
	Fetch func(limit int, lastID uuid.UUID) Page
	// Insert adds an item that is newer than all other items. The filter of Fetch can match the
	// item or not.
	Insert func(rt *rapid.T) uuid.UUID
	// Change changes an item. The change can affect whether the filter of Fetch matches the item.
	Change func(rt *rapid.T, id uuid.UUID)
	// Matches reports whether Fetch should return the item in its present state.
	Matches func(id uuid.UUID) bool
}

// CheckPages inserts and changes items at random while it reads pages. Each page must equal the
// page that is computed from the present items, even if the last item of the previous page no
// longer matches the filter.
func CheckPages(rt *rapid.T, l List) {
	var items []uuid.UUID
	for range rapid.IntRange(0, 8).Draw(rt, "items at the start") {
		items = append(items, l.Insert(rt))
	}
	after := uuid.Nil
	for range rapid.IntRange(4, 16).Draw(rt, "steps") {
		switch step := rapid.SampledFrom([]string{"insert", "change", "turn", "turn"}).Draw(rt, "step"); {
		case step == "insert":
			items = append(items, l.Insert(rt))
		case step == "change" && len(items) > 0:
			l.Change(rt, rapid.SampledFrom(items).Draw(rt, "changed"))
		case step == "turn":
			limit := rapid.IntRange(1, 4).Draw(rt, "limit")
			want := expectedPage(items, l.Matches, limit, after)
			got := l.Fetch(limit, after)
			if !slices.Equal(got.IDs, want.IDs) || got.More != want.More {
				rt.Fatalf("limit %d after %s: %v, want %v", limit, after, got, want)
			}
			if after = uuid.Nil; got.More {
				after = got.IDs[len(got.IDs)-1]
			}
		}
	}
}

func expectedPage(items []uuid.UUID, matches func(uuid.UUID) bool, limit int, lastID uuid.UUID) Page {
	var left []uuid.UUID
	for _, id := range items {
		if matches(id) && (lastID == uuid.Nil || bytes.Compare(id[:], lastID[:]) < 0) {
			left = append(left, id)
		}
	}
	slices.SortFunc(left, func(a, b uuid.UUID) int { return bytes.Compare(b[:], a[:]) })
	return Page{IDs: left[:min(limit, len(left))], More: len(left) > limit}
}

// maxInserts is the number of items that one goroutine inserts while all pages are read. It
// limits the duration of the test.
const maxInserts = 60

// Race reads all pages while goroutines insert maxInserts items each. Every item that existed at
// the start must appear once, newest first. Race calls insert concurrently. The filter of fetch
// must match the inserted items.
func Race(t *testing.T, insert func() uuid.UUID, fetch func(limit int, lastID uuid.UUID) Page) {
	t.Helper()
	var start []uuid.UUID
	for range 30 {
		start = append(start, insert())
	}
	for _, limit := range []int{1, 3, 7, 100} {
		var others sync.WaitGroup
		for range 3 {
			others.Go(func() {
				for range maxInserts {
					insert()
				}
			})
		}
		seen := walkPages(t, limit, fetch)
		others.Wait()
		for _, id := range start {
			if !slices.Contains(seen, id) {
				t.Fatalf("limit %d: %s was there from the start and is missing among %d", limit, id, len(seen))
			}
		}
	}
}

func walkPages(t *testing.T, limit int, fetch func(limit int, lastID uuid.UUID) Page) (seen []uuid.UUID) {
	t.Helper()
	for after, more := uuid.Nil, true; more; {
		page := fetch(limit, after)
		if len(page.IDs) > limit || (page.More && len(page.IDs) < limit) {
			t.Fatalf("limit %d: %d items, has_more %v", limit, len(page.IDs), page.More)
		}
		for _, id := range page.IDs {
			if len(seen) > 0 && bytes.Compare(seen[len(seen)-1][:], id[:]) <= 0 {
				t.Fatalf("limit %d: %s precedes %s", limit, seen[len(seen)-1], id)
			}
			seen = append(seen, id)
		}
		if more = page.More; more {
			after = seen[len(seen)-1]
		}
	}
	return seen
}
