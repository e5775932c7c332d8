// The client of /admin/v1 (docs/reference/api/operator-api.md). It prints responses as a table, or
// as JSON with -o json.

package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// ClientConfig contains the address and the token of the operator API.
type ClientConfig struct {
	URL, Token string
}

// Client sends requests and prints responses.
type Client struct {
	config ClientConfig
	http   *http.Client
	out    io.Writer
	// asides receives progress and remarks, which are not part of the response.
	asides io.Writer
	output Output
	// zone is the time zone of printed times.
	zone *time.Location
	// columns is the width of the terminal, or 0 without a terminal. answers is the input from
	// which confirmations are read, or nil without a terminal.
	columns int
	answers io.Reader
	// reason is why a change is made. It is empty if no reason was given.
	reason string
}

// Output is the format of printed responses.
type Output string

const (
	// Table prints short ids in tables, and times in the local time zone.
	Table Output = "table"
	// Wide prints ids and times as they are in the response.
	Wide Output = "wide"
	// JSON prints the response unchanged, except for the indentation.
	JSON Output = "json"
)

// New returns a client that prints responses to out and everything else to asides.
func New(cfg ClientConfig, out, asides io.Writer, output Output) *Client {
	d := &Client{config: cfg, out: out, asides: asides, output: output, zone: time.Local, columns: terminalWidth(out)}
	d.http = &http.Client{
		Timeout: time.Minute,
		// Do not follow redirects: the token must not be sent to another address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if Attended() {
		d.answers = os.Stdin
	}
	return d
}

// Refusal is an error response of /admin/v1. Its text is the message.
type Refusal struct {
	Status        int
	Code, Message string
	// RequestID is the id of the request in the services' logs, or "" if unknown.
	RequestID string
	asked     string
}

func (r *Refusal) Error() string {
	switch {
	case r.Status == http.StatusUnauthorized:
		return "the operator token was refused: RINGFENCE_ADMIN_TOKEN must be one of the gateway's OPERATOR_TOKENS, and " +
			"RINGFENCE_ADMIN_URL must be its admin address"
	case r.Code == "":
		return fmt.Sprintf("%s returned %d, which is not a response of the gateway: check that RINGFENCE_ADMIN_URL is the "+
			"admin address", r.asked, r.Status)
	}
	return r.Message
}

// At joins segments to a path and escapes each segment.
func At(segments ...string) string {
	var path strings.Builder
	path.WriteString("/admin/v1")
	for _, segment := range segments {
		path.WriteByte('/')
		path.WriteString(url.PathEscape(segment))
	}
	return path.String()
}

// maxResponse is the largest accepted response in bytes. It permits a page of a hundred of the
// largest objects.
const maxResponse = 64 << 20

// Ask sends one request and returns the body of the response. body is encoded as JSON unless it is
// a []byte. It can be nil.
func (d *Client) Ask(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	return d.exchange(ctx, method, path, body, json.Valid)
}

// Fetch sends a GET request and returns a body of any content type.
func (d *Client) Fetch(ctx context.Context, path string) ([]byte, error) {
	return d.exchange(ctx, http.MethodGet, path, nil, func([]byte) bool { return true })
}

func (d *Client) exchange(
	ctx context.Context, method, path string, body any, valid func([]byte) bool,
) (json.RawMessage, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	path, err := d.expandIDs(ctx, path)
	if err != nil {
		return nil, err
	}
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
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(d.config.URL, "/")+path, content)
	// The URL is not printed, because it can contain a password.
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return nil, errors.New("RINGFENCE_ADMIN_URL is not an address such as http://127.0.0.1:8081")
	}
	req.Header.Set("Authorization", "Bearer "+d.config.Token)
	req.Header.Set("Content-Type", "application/json")
	if d.reason != "" {
		req.Header.Set("Ringfence-Reason", d.reason)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var unreached *net.OpError
		if method != http.MethodGet && (!errors.As(err, &unreached) || unreached.Op != "dial") {
			return nil, fmt.Errorf("the operator API at %s did not complete its response: %w; the change may have been applied: check before you repeat it", req.URL.Host, errors.Unwrap(err))
		}
		return nil, fmt.Errorf("the operator API at %s does not respond: %w", req.URL.Host, errors.Unwrap(err))
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return nil, fmt.Errorf("read the response to %s %s: %w", method, path, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		refused := struct{ Error Refusal }{}
		_ = json.Unmarshal(answer, &refused) // a body that is not JSON has no error code
		refused.Error.Status, refused.Error.RequestID, refused.Error.asked = resp.StatusCode, resp.Header.Get("X-Request-Id"), method+" "+path
		return nil, &refused.Error
	}
	if !valid(answer) {
		return nil, &Refusal{Status: resp.StatusCode, asked: method + " " + path}
	}
	return answer, nil
}

// checkPath refuses a path with an empty segment, "." or "..". Such a path names the collection or
// its parent instead of an object.
func checkPath(path string) error {
	path, _, _ = strings.Cut(path, "?")
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			return fmt.Errorf("%q is not a valid id", segment)
		}
	}
	return nil
}

// Show sends a request and prints the returned object.
func (d *Client) Show(ctx context.Context, method, path string, body any) error {
	answer, err := d.Ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	return d.Member(answer)
}

// Write sends an object with settings and prints the returned object. It reports the fields that
// the response does not contain: the service ignored them, probably because of a spelling mistake.
func (d *Client) Write(ctx context.Context, method, path string, body map[string]any) error {
	answer, err := d.Ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	return d.printWritten(answer, body)
}

func (d *Client) printWritten(answer []byte, body map[string]any) error {
	var kept map[string]json.RawMessage
	if json.Unmarshal(answer, &kept) == nil {
		for _, name := range slices.Sorted(maps.Keys(body)) {
			if body[name] != nil && kept[name] == nil && kept["has_"+name] == nil {
				d.Remark("%s was ignored: there is no such setting.", name)
			}
		}
	}
	return d.Member(answer)
}

// JSON reports whether responses are printed as JSON.
func (d *Client) JSON() bool { return d.output == JSON }

// Say prints one line of a response that is text.
func (d *Client) Say(text string) error { return d.write(Printable(text) + "\n") }

// Remark prints a line that is not part of the response.
func (d *Client) Remark(format string, args ...any) {
	Aside(d.asides, d.JSON(), "remark", fmt.Sprintf(format, args...))
}

// Aside prints one line that is not part of the response: text, or a JSON object with one key.
func Aside(to io.Writer, asJSON bool, name string, what any) {
	text := Printable(fmt.Sprint(what))
	if asJSON {
		if encoded, err := json.Marshal(map[string]any{name: what}); err == nil {
			text = Escaped(encoded)
		}
	}
	_, _ = fmt.Fprintln(to, text)
}
