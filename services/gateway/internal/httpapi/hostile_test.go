package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/gateway/internal/httpapi"
	"ringfence.dev/services/gateway/internal/proxy"
)

func (r *rig) listen() string {
	r.t.Helper()
	free := httptest.NewServer(http.NotFoundHandler())
	addr := free.Listener.Addr().String()
	free.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	server := &httpserver.Server{Addr: addr, Handler: r.public.Config.Handler, Header: httpapi.Uncounted()}
	go func() { ended <- server.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return addr
		}
		select {
		case err := <-ended:
			r.t.Fatalf("serve: %v", err)
		default: // the server is not listening yet
		}
	}
}

// sendRaw writes a raw request to a connection. It reads responses until the server closes the
// connection, or until maxAnswers responses have arrived.
func sendRaw(t *testing.T, addr, request string, maxAnswers int) (answers []answered, closed bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(testkit.Timeout))
	// The server can respond and close the connection before it has read the whole request.
	go func() { _, _ = io.WriteString(conn, request) }()
	reader := bufio.NewReader(conn)
	method, _, _ := strings.Cut(request, " ")
	for len(answers) < maxAnswers {
		response, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err != nil {
			return answers, true
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Errorf("%.80q: read answer: %v", request, err)
		}
		if response.StatusCode != http.StatusContinue {
			answers = append(answers, answered{response.StatusCode, response.Header, string(body)})
		}
	}
	return answers, false
}

// hostileRequest is one request and the response that the client must get. In the text of the
// request, {key} and {read} are replaced by Authorization headers, and {host} by the Host header.
type hostileRequest struct {
	name, request string
	status        int
	code          string
}

func (r *rig) mustWithstand(t *testing.T, addr, key, read string, rows []hostileRequest) {
	t.Helper()
	fill := strings.NewReplacer("{key}", "Host: x\r\nAuthorization: Bearer "+key, "{read}", "Host: x\r\nAuthorization: Bearer "+read, "{host}", "Host: x")
	for _, row := range rows {
		answers, _ := sendRaw(t, addr, fill.Replace(row.request), 1)
		if len(answers) != 1 {
			t.Errorf("%s: no answer", row.name)
			continue
		}
		got := answers[0]
		if got.status != row.status {
			t.Errorf("%s: got.status = %v, want %v", row.name, got.status, row.status)
		} else if got.body != "" && got.code() != row.code {
			t.Errorf("%s: got.code() = %q, want %q", row.name, got.code(), row.code)
		}
		mustHaveHeaders(t, row.name, got)
		if strings.HasPrefix(row.request, "HEAD") {
			continue
		}
		if row.code == "" {
			continue
		}
		var body struct{ Error struct{ Message string } }
		if err := json.Unmarshal([]byte(got.body), &body); err != nil {
			t.Errorf("%s: read error body %.300q: %v", row.name, got.body, err)
		}
		if body.Error.Message == "" {
			t.Errorf("%s: error body = %.300q, want a message", row.name, got.body)
		}
		if len(got.body) > 1<<10 {
			t.Errorf("%s: length of the error body = %d, want at limit 1024", row.name, len(got.body))
		}
	}
}

const end = "\r\n\r\n"

func TestPublic_HostileRequestLinesAreRefusedOrHarmless(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	workspaceID := r.workspace(`"rate_limit_per_minute":10000`)
	key, _ := r.key(workspaceID, "write")
	read, _ := r.key(workspaceID, "read")
	addr := r.listen()
	r.mustWithstand(t, addr, key, read, []hostileRequest{
		{"TRACE is not echoed", "TRACE /v1/calls HTTP/1.1\r\n{key}" + end, 405, "method_not_allowed"},
		{"a WebDAV method", "PROPFIND /v1/calls HTTP/1.1\r\n{key}" + end, 405, "method_not_allowed"},
		{"a lower-case method is unknown", "get /v1/calls HTTP/1.1\r\n{key}" + end, 405, "method_not_allowed"},
		{"an unknown method needs a key with write access", "get /v1/calls HTTP/1.1\r\n{read}" + end, 403, "missing_scope"},
		{
			"a method of 20000 letters", strings.Repeat("X", 20000) + " /v1/calls HTTP/1.1\r\n{key}" + end, 405,
			"method_not_allowed",
		},
		{"an empty method", " /v1/calls HTTP/1.1\r\n{key}" + end, 400, "bad_request"},
		{"a method with an invalid letter", "GÉT /v1/calls HTTP/1.1\r\n{key}" + end, 400, "bad_request"},
		{"OPTIONS is an unknown method", "OPTIONS /v1/calls HTTP/1.1\r\n{key}" + end, 405, "method_not_allowed"},
		{"OPTIONS with the target *", "OPTIONS * HTTP/1.1\r\n{key}" + end, 404, "not_found"},
		{"OPTIONS without a key", "OPTIONS * HTTP/1.1\r\n{host}" + end, 401, "invalid_api_key"},
		{"CONNECT opens no tunnel", "CONNECT example.com:443 HTTP/1.1\r\n{key}" + end, 404, "not_found"},
		{"CONNECT without a key", "CONNECT example.com:443 HTTP/1.1\r\n{host}" + end, 401, "invalid_api_key"},
		{"HEAD is accepted where GET is", "HEAD /v1/calls HTTP/1.1\r\n{read}" + end, 200, ""},
		{"HEAD of an unknown route", "HEAD /v1/nothing HTTP/1.1\r\n{read}" + end, 404, "not_found"},
		{"HEAD without a key", "HEAD /v1/calls HTTP/1.1\r\n{host}" + end, 401, "invalid_api_key"},
		{"a request line without a version", "GET /v1/calls\r\n" + end, 400, "bad_request"},
		{"HTTP/3.0 in the request line", "GET /v1/calls HTTP/3.0\r\n{key}" + end, 505, "bad_request"},
		{"the preface of HTTP/2 counts as a request without a key", "PRI * HTTP/2.0\r\n\r\nSM" + end, 401, "invalid_api_key"},
		{"HTTP/1.0 without a host", "GET /v1/calls HTTP/1.0\r\nAuthorization: Bearer " + key + end, 200, ""},
		{"an absolute target", "GET http://elsewhere.example/v1/calls HTTP/1.1\r\n{key}" + end, 200, ""},
		{"an absolute target of another scheme", "GET gopher:v1/calls HTTP/1.1\r\n{key}" + end, 404, "not_found"},
		{"a target without a slash", "GET v1/calls HTTP/1.1\r\n{key}" + end, 400, "bad_request"},
		{"a space in the path", "GET /v1/opt-outs/ 15550100 HTTP/1.1\r\n{key}" + end, 400, "bad_request"},
		{"an invalid percent-encoding in the path", "GET /v1/calls/%zz HTTP/1.1\r\n{key}" + end, 400, "bad_request"},
		{"an incomplete percent-encoding in the path", "GET /v1/calls/%4 HTTP/1.1\r\n{host}" + end, 400, "bad_request"},
		{
			"an invalid percent-encoding in the query", "GET /v1/calls?limit=%zz HTTP/1.1\r\n{key}" + end, 422,
			"validation_error",
		},
		{
			"an invalid percent-encoding in the query, without a key", "GET /v1/calls?limit=%zz HTTP/1.1\r\n{host}" + end,
			401, "invalid_api_key",
		},
		{
			"an invalid percent-encoding in the query of an unknown route",
			"GET /v1/nothing?limit=%zz HTTP/1.1\r\n{key}" + end, 404, "not_found",
		},
		{"a semicolon in the query", "GET /v1/calls?a=1;b=2 HTTP/1.1\r\n{key}" + end, 422, "validation_error"},
		{"a double slash at the start", "GET //v1/calls HTTP/1.1\r\n{key}" + end, 404, "not_found"},
		{"a slash at the end", "GET /v1/calls/ HTTP/1.1\r\n{key}" + end, 404, "not_found"},
		{"a dot segment", "GET /v1/./calls HTTP/1.1\r\n{key}" + end, 404, "not_found"},
		{"two dots as an id", "GET /v1/calls/.. HTTP/1.1\r\n{key}" + end, 404, "not_found"},
		{"two dots as an id, percent-encoded", "GET /v1/calls/%2E%2e HTTP/1.1\r\n{key}" + end, 404, "not_found"},
		{"a fragment", "GET /v1/calls#top HTTP/1.1\r\n{key}" + end, 404, "not_found"},
		{"a backslash instead of a slash", "GET /v1\\calls HTTP/1.1\r\n{key}" + end, 404, "not_found"},
		{"a path of 60 kB", "GET /v1/calls/" + strings.Repeat("a", 60000) + " HTTP/1.1\r\n{key}" + end, 200, ""},
		{
			"a path of 100 kB", "GET /v1/calls/" + strings.Repeat("a", 100000) + " HTTP/1.1\r\n{key}" + end, 431,
			"headers_too_large",
		},
		{
			"a query of 1 MiB", "GET /v1/calls?q=" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\n{key}" + end, 431,
			"headers_too_large",
		},
		{"TLS on a plain port", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + end, 400, "bad_request"},
	})
	for sent, want := range map[string]string{
		"/v1/opt-outs/+15550100": "/v1/opt-outs/+15550100", "/v1/opt-outs/%2B15550100": "/v1/opt-outs/+15550100", "/v1/opt-outs/%2b1555010%30": "/v1/opt-outs/+15550100",
		"/v1/opt-outs/%2015550100": "/v1/opt-outs/%2015550100", "/v1/opt-outs/%D9%A1": "/v1/opt-outs/%D9%A1", "/v1/calls/a%2Fb": "/v1/calls/a%2Fb",
		"/v1/calls?status=a&status=b&unknown=%00&x=\xff": "/v1/calls?status=a&status=b&unknown=%00&x=\xff",
	} {
		answers, _ := sendRaw(t, addr, "GET "+sent+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+read+end, 1)
		received := append(r.requestsTo(proxy.Contacts), r.requestsTo(proxy.Calls)...)
		if len(answers) != 1 {
			t.Fatalf("%s: length of answers = %v, want 1", sent, len(answers))
		}
		if answers[0].status != 200 {
			t.Errorf("%s: answers[0].status = %v, want 200", sent, answers[0].status)
		}
		if !strings.Contains(uris(received), want+"\n") {
			t.Errorf("%s: uris(received) = %q, want it to contain %q", sent, uris(received), want+"\n")
		}
	}
}

func TestPublic_HostileHeadersAreRefusedOrHarmless(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	workspaceID := r.workspace(`"rate_limit_per_minute":10000`)
	key, _ := r.key(workspaceID, "write")
	read, _ := r.key(workspaceID, "read")
	addr := r.listen()
	get := "GET /v1/calls HTTP/1.1\r\n{key}\r\n"
	post := "POST /v1/calls HTTP/1.1\r\n{key}\r\n"
	r.mustWithstand(t, addr, key, read, []hostileRequest{
		{"a method override", get + "X-HTTP-Method-Override: DELETE\r\nX-Method-Override: DELETE\r\n\r\n", 200, ""},
		{"10000 headers with one name", get + strings.Repeat("a:b\r\n", 10000) + "\r\n", 200, ""},
		{"3000 headers with different names", get + manyHeaders(3000) + "\r\n", 200, ""},
		{"headers above the size limit", get + strings.Repeat("a: bbbbbbbb\r\n", 10000) + "\r\n", 431, "headers_too_large"},
		{"a header of a megabyte", get + "X: " + strings.Repeat("x", 1<<20) + end, 431, "headers_too_large"},
		{"a key of 60 kB", "GET /v1/calls HTTP/1.1\r\n{host}\r\nAuthorization: Bearer " + strings.Repeat("k", 60000) + end, 401, "invalid_api_key"},
		{"two keys", get + "Authorization: Bearer " + read + end, 401, "invalid_api_key"},
		{
			"the key twice in one header",
			"GET /v1/calls HTTP/1.1\r\n{host}\r\nAuthorization: Bearer " + key + ", Bearer " + key + end, 401,
			"invalid_api_key",
		},
		{"the scheme Basic", "GET /v1/calls HTTP/1.1\r\n{host}\r\nAuthorization: Basic " + key + end, 401, "invalid_api_key"},
		{"the key in the query", "GET /v1/calls?api_key=" + key + " HTTP/1.1\r\n{host}" + end, 401, "invalid_api_key"},
		{"two Content-Length headers", post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, "bad_request"},
		{"a negative Content-Length", post + "Content-Length: -1" + end, 400, "bad_request"},
		{"a Content-Length with a plus sign", post + "Content-Length: +2\r\n\r\n{}", 400, "bad_request"},
		{
			"a Content-Length above the largest integer", post + "Content-Length: 99999999999999999999\r\n\r\n{}", 400,
			"bad_request",
		},
		{"an unknown transfer encoding", post + "Transfer-Encoding: gzip\r\n\r\n", 501, "bad_request"},
		{"chunked encoding twice", post + "Transfer-Encoding: chunked, chunked\r\n\r\n0" + end, 501, "bad_request"},
		{
			"two Transfer-Encoding headers",
			post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0" + end, 501, "bad_request",
		},
		{"a control character before chunked", post + "Transfer-Encoding: \vchunked\r\n\r\n0" + end, 400, "bad_request"},
		{"a chunk size that is not a number", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 422, "validation_error"},
		{
			"a chunk size above the largest integer", post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 422,
			"validation_error",
		},
		{"an unknown Expect header", get + "Expect: a-miracle" + end, 417, "expectation_failed"},
		{"an upgrade to WebSocket", get + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x" + end, 200, ""},
		{"an upgrade to HTTP/2", get + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__" + end, 200, ""},
		{"no Host header", "GET /v1/calls HTTP/1.1" + end, 400, "bad_request"},
		{"two Host headers", get + "Host: y" + end, 400, "bad_request"},
		{"an invalid Host header", "GET /v1/calls HTTP/1.1\r\nHost: a b" + end, 400, "bad_request"},
		{"a space before the colon", get + "X : y" + end, 400, "bad_request"},
		{"a NUL in a header", get + "X: a\x00b" + end, 400, "bad_request"},
		{"a header without a colon", get + "nonsense" + end, 400, "bad_request"},
		{
			"forged internal headers",
			get + "X-Ringfence-Caller: forged\r\nX-Ringfence-Service: forged\r\nConnection: X-Ringfence-Caller" + end, 200,
			"",
		},
		{"7000 addresses in X-Forwarded-For", get + "X-Forwarded-For: " + strings.Repeat("1.2.3.4,", 7000) + end, 200, ""},
	})
	for _, h := range r.requestsTo(proxy.Calls) {
		if h.method != http.MethodGet {
			t.Errorf("h.method = %v, want %v", h.method, http.MethodGet)
		}
		if h.header.Get("Upgrade") != "" {
			t.Errorf("Upgrade = %q, want \"\"", h.header.Get("Upgrade"))
		}
		if h.header.Get("Authorization") != "" {
			t.Errorf("Authorization = %q, want \"\"", h.header.Get("Authorization"))
		}
		if h.caller.WorkspaceID.String() != workspaceID {
			t.Errorf("h.caller.WorkspaceID.String() = %v, want %v", h.caller.WorkspaceID.String(), workspaceID)
		}
	}
}

func manyHeaders(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "X-%d: %d\r\n", i, i)
	}
	return text.String()
}

func TestPublic_HostileBodiesAreRefusedOrHarmless(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	workspaceID := r.workspace(`"rate_limit_per_minute":10000`)
	key, _ := r.key(workspaceID, "write")
	read, _ := r.key(workspaceID, "read")
	addr := r.listen()
	post := "POST /v1/calls HTTP/1.1\r\n{key}\r\n"
	r.mustWithstand(t, addr, key, read, []hostileRequest{
		{"a Content-Length of 1 GB", post + "Content-Length: 1000000000\r\n\r\n{", 413, "request_too_large"},
		{"a Content-Length of 1 GB that waits for 100 Continue", post + "Expect: 100-continue\r\nContent-Length: 1000000000" +
			end, 413, "request_too_large"},
		{
			"a Content-Length of 1 GB without a key",
			"POST /v1/calls HTTP/1.1\r\n{host}\r\nContent-Length: 1000000000\r\n\r\n{", 401, "invalid_api_key",
		},
		{
			"a Content-Length of 1 GB with a read key",
			"POST /v1/calls HTTP/1.1\r\n{read}\r\nContent-Length: 1000000000\r\n\r\n{", 403, "missing_scope",
		},
		{
			"a Content-Length of 1 GB to an unknown route",
			"POST /v1/nothing HTTP/1.1\r\n{key}\r\nContent-Length: 1000000000\r\n\r\n{", 404, "not_found",
		},
		{
			"one byte above the limit",
			post + fmt.Sprintf("Content-Length: %d\r\n\r\n", httpserver.MaxBody+1) + strings.Repeat("x", httpserver.MaxBody+1),
			413, "request_too_large",
		},
		{
			"one byte above the limit in chunks",
			post + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n", httpserver.MaxBody+1) +
				strings.Repeat("x", httpserver.MaxBody+1) + "\r\n0" + end,
			413, "request_too_large",
		},
		{"chunks without an end", post + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\nx\r\n", 300_000), 413, "request_too_large"},
		{"a body that waits for 100 Continue", post + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", 200, ""},
		{"a GET with a body", "GET /v1/calls HTTP/1.1\r\n{key}\r\nContent-Length: 2\r\n\r\n{}", 200, ""},
		{
			"a body of an invalid media type",
			post + "Content-Type: text/xml; charset=\"\\\xff\r\nContent-Length: 4\r\n\r\n<a/>", 200, "",
		},
	})
	before := len(r.requestsTo(proxy.Calls))
	packed := gzipBomb(t)
	answers, _ := sendRaw(t, addr, "POST /v1/calls HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+key+
		"\r\nContent-Encoding: gzip\r\n"+
		fmt.Sprintf("Content-Length: %d\r\n\r\n", len(packed))+packed, 1)
	received := r.requestsTo(proxy.Calls)
	if len(answers) != 1 {
		t.Fatalf("a gzip bomb: length of answers = %v, want 1", len(answers))
	}
	if answers[0].status != 200 {
		t.Errorf("a gzip bomb: answers[0].status = %v, want 200", answers[0].status)
	}
	if len(received) != before+1 {
		t.Fatalf("a gzip bomb: length of received = %v, want %v", len(received), before+1)
	}
	if received[before].body != packed {
		t.Errorf("a gzip bomb: received[before].body = %v, want %v", received[before].body, packed)
	}

	pipelined := strings.Repeat("POST /v1/contacts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+key+"\r\nContent-Length: 7\r\n\r\n{\"a\":1}", 3) +
		"GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n"
	answers, _ = sendRaw(t, addr, pipelined, 4)
	statuses := make([]int, 0, len(answers))
	for _, got := range answers {
		statuses = append(statuses, got.status)
	}
	if !slices.Equal(statuses, []int{200, 200, 200, 401}) {
		t.Errorf("pipelined = %v", statuses)
	}

	// The bytes after the end of the body are a second HTTP request with a different key. The
	// gateway must handle them as a second request, and not as a part of the first one.
	smuggled := "POST /v1/webhook-subscriptions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0" + end +
		"DELETE /v1/webhook-subscriptions/" + anID + " HTTP/1.1\r\nHost: x\r\n\r\n"
	answers, _ = sendRaw(t, addr, smuggled, 2)
	for _, h := range r.requestsTo(proxy.Webhooks) {
		if h.method != http.MethodPost {
			t.Errorf("h.method = %v, want %v", h.method, http.MethodPost)
		} else if h.body != "" {
			t.Errorf("h.body = %q, want it empty", h.body)
		}
	}
	if len(answers) != 2 {
		t.Errorf("smuggled: length of answers = %d, want 2", len(answers))
	} else if answers[1].status != http.StatusUnauthorized {
		t.Errorf("smuggled: answers[1].status = %v, want %v", answers[1].status, http.StatusUnauthorized)
	}
}

// gzipBomb returns 64 MiB of spaces, compressed with gzip.
func gzipBomb(t *testing.T) string {
	t.Helper()
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := io.Copy(writer, io.LimitReader(spaces{}, 64<<20)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
