// Package desk is where the operator's commands ask /admin/v1 (contract.md §7) and print what it answers: a table, or with -o json the answer as it came.
package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Door is where the operator's side is and how it is entered.
type Door struct {
	URL, Token string
}

// Desk is where the commands ask and print.
type Desk struct {
	door Door
	http *http.Client
	out  io.Writer
	// asides are progress and remarks, which are no part of the answer.
	asides io.Writer
	json   bool
}

// New prints answers on out, as JSON when asked, and everything else on asides.
func New(door Door, out, asides io.Writer, asJSON bool) *Desk {
	return &Desk{door: door, out: out, asides: asides, json: asJSON, http: &http.Client{
		Timeout: time.Minute,
		// The token goes to the address that was named, and to no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Refusal is an answer that is none: the error body of /admin/v1.
type Refusal struct {
	Status        int
	Code, Message string
	asked         string
}

func (r *Refusal) Error() string {
	switch {
	case r.Status == http.StatusUnauthorized:
		return "the operator's token was refused: RINGFENCE_ADMIN_TOKEN must be one of the gateway's OPERATOR_TOKENS"
	case r.Code == "":
		return fmt.Sprintf("%s was answered with %d, which is no answer of a gateway: does RINGFENCE_ADMIN_URL name the admin address?", r.asked, r.Status)
	}
	return fmt.Sprintf("%s (%d %s)", r.Message, r.Status, r.Code)
}

// At joins the segments of a path, each escaped.
func At(segments ...string) string {
	var path strings.Builder
	path.WriteString("/admin/v1")
	for _, segment := range segments {
		path.WriteByte('/')
		path.WriteString(url.PathEscape(segment))
	}
	return path.String()
}

// mostAnswer bounds an answer: a page of a hundred of the largest members.
const mostAnswer = 64 << 20

// Ask sends one request and returns the answer's body. body is JSON unless it is bytes, which go as they are; nil is none.
func (d *Desk) Ask(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	var content io.Reader
	switch given := body.(type) {
	case nil:
	case []byte:
		content = bytes.NewReader(given)
	default:
		encoded, err := json.Marshal(given)
		if err != nil {
			return nil, fmt.Errorf("encode the body of %s %s: %w", method, path, err)
		}
		content = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(d.door.URL, "/")+path, content)
	if err != nil {
		return nil, fmt.Errorf("RINGFENCE_ADMIN_URL is %q, which is no address: %w", d.door.URL, err)
	}
	req.Header.Set("Authorization", "Bearer "+d.door.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("the operator's side at %s does not answer: %w", d.door.URL, errors.Unwrap(err))
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		refused := struct{ Error Refusal }{}
		_ = json.Unmarshal(answer, &refused) // what is not the error body has no code
		refused.Error.Status, refused.Error.asked = resp.StatusCode, method+" "+path
		return nil, &refused.Error
	}
	if !json.Valid(answer) {
		return nil, &Refusal{Status: resp.StatusCode, asked: method + " " + path}
	}
	return answer, nil
}

// Show prints the member that the request is answered with.
func (d *Desk) Show(ctx context.Context, method, path string, body any) error {
	answer, err := d.Ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	return d.Member(answer)
}

// Listed bounds a list that is asked for; commands embed it.
type Listed struct {
	Limit int  `default:"100" help:"The most that is listed."`
	All   bool `help:"List everything, whatever --limit says."`
}

// mostPage is the largest page that /admin/v1 gives.
const mostPage = 100

// List prints the members of a collection, newest pages after each other, by columns ("id", or "heading=path.of.keys").
func (d *Desk) List(ctx context.Context, path string, filter url.Values, want Listed, columns ...string) error {
	if want.Limit < 1 && !want.All {
		return errors.New("--limit must be at least 1")
	}
	query, members, more := url.Values{}, []json.RawMessage{}, true
	for name, values := range filter {
		if values[0] != "" {
			query[name] = values
		}
	}
	for more && (want.All || len(members) < want.Limit) {
		size := mostPage
		if !want.All {
			size = min(size, want.Limit-len(members))
		}
		query.Set("limit", strconv.Itoa(size))
		answer, err := d.Ask(ctx, http.MethodGet, path+"?"+query.Encode(), nil)
		if err != nil {
			return err
		}
		var page struct {
			Data    []json.RawMessage `json:"data"`
			HasMore bool              `json:"has_more"`
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			return fmt.Errorf("%s was answered with no page: %w", path, err)
		}
		members, more = append(members, page.Data...), page.HasMore && len(page.Data) > 0
		if more {
			var last struct{ ID string }
			if err := json.Unmarshal(page.Data[len(page.Data)-1], &last); err != nil || last.ID == "" {
				return fmt.Errorf("%s has members without an id: its next page cannot be asked for", path)
			}
			query.Set("starting_after", last.ID)
		}
	}
	if more {
		defer d.Remark("There are more than %d: --all lists them.", len(members))
	}
	return d.Table(members, columns)
}

// Remark tells something that is no part of the answer.
func (d *Desk) Remark(format string, args ...any) {
	_, _ = fmt.Fprintf(d.asides, format+"\n", args...)
}
