package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"time"
)

// Listed contains the flags that all commands with a list share.
type Listed struct {
	Limit  int  `default:"100" help:"Maximum number of listed items."`
	All    bool `help:"List all items. --limit has no effect."`
	After  Time `placeholder:"TIME" help:"Only items created after this time, such as 2026-06-04T09:00:00Z or 2h (ago)."`
	Before Time `placeholder:"TIME" help:"Only items created before this time."`
}

// maxPage is the maximum number of objects in a page of /admin/v1.
const maxPage = 100

// List prints the objects of a collection, newest first. A column is a path of JSON keys, such as
// "id" or "owner.name", or a heading with a path: "OWNER=owner.name".
func (d *Client) List(ctx context.Context, collection string, filter url.Values, want Listed, columns ...string) error {
	l, more := d.list(columns), false
	for page, err := range d.yieldPages(ctx, collection, filter, want) {
		if err != nil {
			return err // the JSON array is not closed, so a script detects the missing objects
		}
		if err := l.add(page.Data); err != nil {
			return err
		}
		more = page.HasMore
	}
	if more {
		defer d.Remark("The list has more than %d items: --all lists all of them.", l.printed)
	}
	return l.closeArray()
}

// listUnpaged prints the objects of a list that the API returns without pages.
func (d *Client) listUnpaged(ctx context.Context, path string, columns ...string) error {
	answer, err := d.Ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	var all page
	if err := json.Unmarshal(answer, &all); err != nil {
		return fmt.Errorf("the response to %s is not a list: %w", path, err)
	}
	return d.Table(all.Data, columns)
}

// Members returns all objects of a collection.
func (d *Client) Members(ctx context.Context, collection string, filter url.Values) ([]json.RawMessage, error) {
	return d.members(ctx, collection, filter, Listed{All: true})
}

func (d *Client) members(
	ctx context.Context, collection string, filter url.Values, want Listed,
) ([]json.RawMessage, error) {
	members := []json.RawMessage{}
	for page, err := range d.yieldPages(ctx, collection, filter, want) {
		if err != nil {
			return nil, err
		}
		members = append(members, page.Data...)
	}
	return members, nil
}

type page struct {
	Data    []json.RawMessage `json:"data"`
	HasMore bool              `json:"has_more"`
}

// hasTimeFilter reports whether the list of a collection has the filters created_after and
// created_before.
func hasTimeFilter(collection string) bool {
	return slices.Contains([]string{"calls", "call-requests"}, path.Base(collection)) ||
		(path.Base(collection) == "audit" && collection != At("audit"))
}

// yieldPages yields the pages of a collection, newest first. It requests each page when the caller
// needs it. An error is the last item.
func (d *Client) yieldPages(
	ctx context.Context, collection string, filter url.Values, want Listed,
) iter.Seq2[page, error] {
	query := url.Values{}
	for name, values := range filter {
		if values[0] != "" {
			query[name] = values
		}
	}
	local := !hasTimeFilter(collection) && want.hasTimes()
	if !local {
		want.addTimes(query)
	}
	return func(yield func(page, error) bool) {
		if want.Limit < 1 && !want.All {
			yield(page{}, errors.New("--limit must be at least 1"))
			return
		}
		for n, more := 0, true; more && (want.All || n < want.Limit); {
			size := maxPage
			if !want.All && !local {
				size = min(size, want.Limit-n)
			}
			query.Set("limit", strconv.Itoa(size))
			got, err := d.nextPage(ctx, collection, query)
			if err == nil && local {
				got, err = want.selectTimes(got)
			}
			if free := want.Limit - n; !want.All && len(got.Data) > free {
				got.Data, got.HasMore = got.Data[:free], true
			}
			if !yield(got, err) || err != nil {
				return
			}
			n, more = n+len(got.Data), got.HasMore
		}
	}
}

func (l Listed) hasTimes() bool { return !l.After.IsZero() || !l.Before.IsZero() }

// addTimes adds the times as query parameters, for a list that the server filters by time.
func (l Listed) addTimes(query url.Values) {
	for name, at := range map[string]Time{"created_after": l.After, "created_before": l.Before} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
}

// selectTimes returns the items that were created between l.After and l.Before, according to their
// ids.
func (l Listed) selectTimes(all page) (page, error) {
	chosen := page{HasMore: all.HasMore}
	for _, item := range all.Data {
		var of struct{ ID string }
		if err := json.Unmarshal(item, &of); err != nil {
			return page{}, fmt.Errorf("read the response: %w", err)
		}
		created, ok := timeOfID(of.ID)
		switch {
		case !ok:
			return page{}, fmt.Errorf("the id %q contains no time: --after and --before cannot filter this list", of.ID)
		case !l.After.IsZero() && !created.After(l.After.Time):
			chosen.HasMore = false // the list is sorted by time, so all further items are older
			return chosen, nil
		case l.Before.IsZero() || created.Before(l.Before.Time):
			chosen.Data = append(chosen.Data, item)
		}
	}
	return chosen, nil
}

// nextPage returns one page. It changes the query so that the next call returns the next page.
func (d *Client) nextPage(ctx context.Context, collection string, query url.Values) (got page, err error) {
	answer, err := d.Ask(ctx, http.MethodGet, collection+"?"+query.Encode(), nil)
	if err != nil {
		return page{}, err
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return page{}, fmt.Errorf("the response to %s is not a page: %w", collection, err)
	}
	if got.HasMore = got.HasMore && len(got.Data) > 0; !got.HasMore {
		return got, nil
	}
	var last struct{ ID string }
	if err := json.Unmarshal(got.Data[len(got.Data)-1], &last); err != nil || last.ID == "" {
		return page{}, fmt.Errorf("%s has items without an id: the next page cannot be requested", collection)
	}
	if last.ID == query.Get("starting_after") {
		return page{}, fmt.Errorf("%s returned the same page again: the list is incomplete", collection)
	}
	query.Set("starting_after", last.ID)
	return got, nil
}
