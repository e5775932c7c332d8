package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T, asJSON bool, answer http.HandlerFunc) (d *Client, printed *bytes.Buffer) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	printed = &bytes.Buffer{}
	output := Table
	if asJSON {
		output = JSON
	}
	d = New(ClientConfig{URL: server.URL + "/", Token: "a-token"}, printed, printed, output)
	d.zone = time.FixedZone("EST", -5*3600)
	return d, printed
}

func TestList_PrintsAllPages(t *testing.T) {
	for _, test := range []struct {
		name  string
		want  Listed
		lines int
		more  bool
		pages []string
	}{
		{"one page", Listed{Limit: 100}, 100, true, []string{"100"}},
		{"fewer than a page", Listed{Limit: 3}, 3, true, []string{"3"}},
		{"more than a page", Listed{Limit: 130}, 130, true, []string{"100", "30"}},
		{"all", Listed{Limit: 1, All: true}, 250, false, []string{"100", "100", "100"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var pages []string
			d, printed := open(t, false, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Authorization"); got != "Bearer a-token" {
					t.Errorf("Authorization = %q, want the token", got)
				}
				if got := r.URL.Path; got != "/admin/v1/things" {
					t.Errorf("path = %q, want /admin/v1/things", got)
				}
				if got := r.URL.Query().Get("kind"); got != "a&b" {
					t.Errorf("filter kind = %q, want a&b", got)
				}
				if r.URL.Query().Has("empty") {
					t.Errorf("query = %q, want it without the empty filter", r.URL.RawQuery)
				}
				from, size := 0, 0
				_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &size)
				_, _ = fmt.Sscanf(r.URL.Query().Get("starting_after"), "id-%d", &from)
				pages = append(pages, r.URL.Query().Get("limit"))
				rows := []string{}
				for n := from + 1; n <= min(from+size, 250); n++ {
					rows = append(rows, fmt.Sprintf(`{"id":"id-%d","of":{"who":"Ada"}}`, n))
				}
				_, _ = fmt.Fprintf(w, `{"data":[%s],"has_more":%t}`, strings.Join(rows, ","), from+size < 250)
			})
			filter := map[string][]string{"kind": {"a&b"}, "empty": {""}}
			if err := d.List(t.Context(), At("things"), filter, test.want, "id", "who=of.who"); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(printed.String(), "Ada"); got != test.lines {
				t.Errorf("lines = %d, want %d", got, test.lines)
			}
			if !slices.Equal(pages, test.pages) {
				t.Errorf("page sizes = %v, want %v", pages, test.pages)
			}
			if got := strings.Contains(printed.String(), "The list has more than"); got != test.more {
				t.Errorf("remark about more members = %v, want %v", got, test.more)
			}
			if !strings.HasPrefix(printed.String(), "ID") {
				t.Errorf("output = %.40q…, want it to begin with ID", printed)
			}
		})
	}
}

func TestTable_PrintsAListInAnObjectAsOneCell(t *testing.T) {
	d, printed := open(t, false, nil)
	members := []json.RawMessage{[]byte(`{"id":"1","services":[{"service":"calls","open":0},{"service":"dialer","open":2}]}`), []byte(`{"id":"2","services":[]}`), []byte(`{"id":"3"}`)}
	want := "ID  SERVICES      OPEN\n1   calls dialer  0 2\n2                 \n3   -             -\n"
	if err := d.Table(members, []string{"id", "services=services.service", "open=services.open"}); err != nil {
		t.Fatal(err)
	}
	if got := printed.String(); got != want {
		t.Errorf("output = %q, want %q", got, want)
	}
}

// The client must not store a whole list in memory.
func TestList_PrintsEachPageBeforeItRequestsTheNext(t *testing.T) {
	for asJSON, want := range map[bool]string{
		false: "ID  NAME\n1   a\n2   longer\n333  b\n",
		true:  "[\n  {\n    \"id\": \"1\",\n    \"name\": \"a\"\n  },\n  {\n    \"id\": \"2\",\n    \"name\": \"longer\"\n  },\n  {\n    \"id\": \"333\",\n    \"name\": \"b\"\n  }\n]\n",
	} {
		var before []int
		var printed *bytes.Buffer
		pages := []string{`{"id":"1","name":"a"},{"id":"2","name":"longer"}`, `{"id":"333","name":"b"}`}
		d, printed := open(t, asJSON, func(w http.ResponseWriter, _ *http.Request) {
			before = append(before, strings.Count(printed.String(), "longer"))
			_, _ = fmt.Fprintf(w, `{"data":[%s],"has_more":%t}`, pages[len(before)-1], len(before) < len(pages))
		})
		if err := d.List(t.Context(), At("things"), nil, Listed{All: true}, "id", "name"); err != nil {
			t.Fatal(err)
		}
		if got := printed.String(); got != want {
			t.Errorf("output =\n%swant\n%s", got, want)
		}
		if want := []int{0, 1}; !slices.Equal(before, want) {
			t.Errorf("members printed before each page was requested = %v, want %v", before, want)
		}
	}
}

func TestList_RepeatedPageIsAnError(t *testing.T) {
	d, _ := open(t, false, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data":[{"id":"7"}],"has_more":true}`))
	})
	wantError(t, d.List(t.Context(), At("things"), nil, Listed{All: true}, "id"), "the same page again", "\n")
}

func TestClient_ErrorsContainCauseAndRemedy(t *testing.T) {
	for _, test := range []struct {
		status     int
		body, want string
	}{
		{401, `{"error":{"code":"invalid_operator_token","message":"x"}}`, "OPERATOR_TOKENS"},
		{422, `{"error":{"code":"validation_error","message":"plan must be one of starter, growth, scale."}}`, "plan must be one of starter, growth, scale."},
		{502, `<html>`, "RINGFENCE_ADMIN_URL"},
		{200, `<html>`, "RINGFENCE_ADMIN_URL"},
		{307, ``, "RINGFENCE_ADMIN_URL"},
	} {
		d, _ := open(t, false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(test.status)
			_, _ = w.Write([]byte(test.body))
		})
		wantError(t, d.Show(t.Context(), http.MethodGet, At("workspaces"), nil), test.want, "\n")
	}
	away, _ := open(t, false, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for method, want := range map[string]bool{http.MethodGet: false, http.MethodPost: true, http.MethodPatch: true} {
		err := away.Show(t.Context(), method, At("workspaces"), nil)
		if err == nil {
			t.Fatalf("%s without a response succeeded, want an error", method)
		}
		if got := strings.Contains(err.Error(), "may have been applied"); got != want {
			t.Errorf("%s without a response: warning = %v, want %v; error: %v", method, got, want, err)
		}
	}
	for _, wrong := range []string{"localhost:8081", "127.0.0.1:8081", "::", "ftp://u:s3cret@127.0.0.1", "http://"} {
		d := New(ClientConfig{URL: wrong, Token: "t"}, nil, nil, Table)
		wantError(t, d.Show(t.Context(), http.MethodGet, At("workspaces"), nil), "is not an address", "s3cret")
	}
	closed := New(ClientConfig{URL: "http://u:s3cret@127.0.0.1:1", Token: "t"}, nil, nil, Table)
	err := closed.Show(t.Context(), http.MethodPost, At("workspaces"), nil)
	wantError(t, err, "does not respond", "s3cret")
	wantError(t, err, "does not respond", "may have")
}

func wantError(t *testing.T, err error, want, unwanted string) {
	t.Helper()
	if err == nil {
		t.Fatalf("error = nil, want it to contain %q", want)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("error = %q, want it to contain %q", err, want)
	}
	if strings.Contains(err.Error(), unwanted) {
		t.Errorf("error = %q, want it without %q", err, unwanted)
	}
}

// Text of customers must not control the operator's terminal.
func TestClient_PrintsNoControlCharacters(t *testing.T) {
	d, printed := open(t, false, nil)
	member := json.RawMessage(`{"name":"a\u001b[2Jb\u0000\r\u009bc\u202e","count":12345678901234567890,"none":null,"deep":{"x":[1, 2]},"raw":["` + "\u009b31m\u202e\u2066\U000e0041\x9b" + `"],"k` + "\u009b" + `":1}`)
	if err := d.Member(member); err != nil {
		t.Fatal(err)
	}
	if err := d.Table([]json.RawMessage{member}, []string{"name", "missing", "x=deep.x"}); err != nil {
		t.Fatal(err)
	}
	text := printed.String()
	for _, control := range []string{"\x1b", "\x00", "\r", "\u009b", "\u202e", "\u2066", "\U000e0041", "\x9b31m"} {
		if strings.Contains(text, control) {
			t.Errorf("output = %q, want it without %q", text, control)
		}
	}
	for _, want := range []string{"12345678901234567890", "deep\n  x  1, 2\n", "none   -"} {
		if !strings.Contains(text, want) {
			t.Errorf("output = %q, want it to contain %q", text, want)
		}
	}
	asJSON, printed := open(t, true, nil)
	if err := asJSON.Table([]json.RawMessage{member}, []string{"name"}); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(printed.Bytes()) {
		t.Errorf("output = %q, want JSON", printed)
	}
	if at := strings.IndexAny(printed.String(), "\x1b\u009b\u202e\u2066\U000e0041"); at >= 0 {
		t.Errorf("output = %q, which has a control character at byte %d", printed, at)
	}
}

func TestSettings_MergesFileAndFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.json")
	if err := os.WriteFile(file, []byte(`{"name":"from the file","features":{"api":true}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	nothing, twice := filepath.Join(t.TempDir(), "null.json"), filepath.Join(t.TempDir(), "twice.json")
	for name, content := range map[string]string{nothing: "null", twice: "{} {}"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		settings Settings
		named    map[string]any
		want     string
	}{
		{Settings{Set: []string{"a=1", "b=text, with a comma", `c="1"`, "d=null", "e=a=b", "f="}}, nil, `{"a":1,"b":"text, with a comma","c":"1","d":null,"e":"a=b","f":""}`},
		{Settings{Set: []string{`features={"api":true}`, "features.webhooks=false", "n=12345678901234567890", "d=0.10"}}, nil, `{"d":0.10,"features":{"api":true,"webhooks":false},"n":12345678901234567890}`},
		{Settings{Set: []string{"a..b=1"}}, nil, "KEY=VALUE"},
		{Settings{Set: []string{"password=s3cret"}}, nil, "--set password=… would show a secret"},
		{Settings{Set: []string{"sip.Key=s3cret"}}, nil, "--set sip.Key=… would show a secret"},
		{Settings{File: nothing, Set: []string{"a=1"}}, nil, "contains no JSON object"},
		{Settings{File: twice}, nil, "contains no JSON object"},
		{Settings{File: file, Set: []string{"features.webhooks=false"}}, nil, `{"features":{"api":true,"webhooks":false},"name":"from the file"}`},
		{Settings{File: file}, map[string]any{"name": "named", "plan": ""}, `{"features":{"api":true},"name":"named"}`},
		{Settings{Set: []string{"name"}}, nil, "KEY=VALUE"},
		{Settings{Set: []string{"a=1", "a.b=2"}}, nil, "a is not an object"},
		{Settings{}, nil, "no field was given"},
		{Settings{File: "/nowhere/at/all"}, nil, "no such file"},
	} {
		body, err := test.settings.Body(t.Context(), test.named)
		got, _ := json.Marshal(body)
		if err != nil {
			got = []byte(err.Error())
		}
		if !strings.Contains(string(got), test.want) {
			t.Errorf("%+v = %s, want %s", test.settings, got, test.want)
		}
	}
}
