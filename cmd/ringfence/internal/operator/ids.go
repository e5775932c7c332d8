package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ids are UUIDv7: the first 12 digits are the time of creation in milliseconds. Tables print these
// digits as a short id. Commands accept every prefix of an id that contains at least these digits.
var (
	wholeID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	shortID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}[0-9a-f-]{0,22}$`)
)

const (
	// shortLength is the length of a short id, with its hyphen.
	shortLength = 13
	// prefixSegments is the number of segments of a path such as /admin/v1/workspaces/ID.
	prefixSegments = 5
)

// timeOfID returns the time of creation in the id, or false if the id contains no time.
func timeOfID(id string) (time.Time, bool) {
	if !wholeID.MatchString(id) {
		return time.Time{}, false
	}
	return timeOfShortID(id)
}

func timeOfShortID(id string) (time.Time, bool) {
	milliseconds, err := strconv.ParseInt(id[:8]+id[9:shortLength], 16, 64)
	return time.UnixMilli(milliseconds), err == nil
}

// errNoID means that no id begins with the given characters.
var errNoID = errors.New("no id begins with")

// expandIDs replaces the short ids in the segments and in the query of a path by whole ids.
func (d *Client) expandIDs(ctx context.Context, address string) (string, error) {
	address, query, hasQuery := strings.Cut(address, "?")
	segments := strings.Split(address, "/")
	for i, segment := range segments {
		if i < 2 || !shortID.MatchString(segment) {
			continue
		}
		collection := strings.Join(segments[:i], "/")
		if segments[i-1] == "agent-keys" { // the API does not list agent keys
			collection = path.Join(path.Dir(collection), "agents")
		}
		id, err := d.findID(ctx, collection, segment)
		if err != nil {
			return "", err
		}
		segments[i] = id
	}
	address = strings.Join(segments, "/")
	if !hasQuery {
		return address, nil
	}
	query, err := d.expandQuery(ctx, strings.Join(segments[:min(prefixSegments, len(segments))], "/"), query)
	return address + "?" + query, err
}

// expandQuery replaces short ids in the query by whole ids. workspace is the path of the workspace.
func (d *Client) expandQuery(ctx context.Context, workspace, query string) (string, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return query, nil //nolint:nilerr // the server refuses the query
	}
	changed := false
	for name, collections := range map[string][]string{
		"call_id": {workspace + "/calls"}, "call_request_id": {workspace + "/call-requests"},
		"agent_id": {workspace + "/agents"}, "of": {workspace + "/call-requests", workspace + "/calls"},
		"workspace_id": {At("workspaces")},
	} {
		if !shortID.MatchString(values.Get(name)) {
			continue
		}
		id, err := d.findID(ctx, collections[0], values.Get(name))
		if errors.Is(err, errNoID) && len(collections) > 1 {
			id, err = d.findID(ctx, collections[1], values.Get(name))
		}
		if err != nil {
			return "", err
		}
		values.Set(name, id)
		changed = true
	}
	if !changed {
		return query, nil
	}
	return values.Encode(), nil
}

// findID returns the only id in the collection that begins with short. It returns an error if no id
// or several ids begin with short.
func (d *Client) findID(ctx context.Context, collection, short string) (string, error) {
	created, ok := timeOfShortID(short)
	if !ok || wholeID.MatchString(short) {
		return short, nil
	}
	near := Listed{All: true, After: Time{created.Add(-time.Millisecond)}, Before: Time{created.Add(time.Millisecond)}}
	items, err := d.members(ctx, collection, nil, near)
	if err != nil {
		return "", err
	}
	var found []string
	for _, item := range items {
		var of struct{ ID string }
		if json.Unmarshal(item, &of) == nil && strings.HasPrefix(of.ID, short) && !slices.Contains(found, of.ID) {
			found = append(found, of.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%w %s in the list of %s", errNoID, short, path.Base(collection))
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d ids begin with %s: %s", len(found), short, strings.Join(found, ", "))
}
