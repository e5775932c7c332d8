package testkit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/libs/testkit"
)

type judged struct {
	testing.TB
	failed bool
}

func (j *judged) Helper()               {}
func (j *judged) Errorf(string, ...any) { j.failed = true }
func (j *judged) Fatalf(string, ...any) { j.failed = true }

func TestMustAnswer_FindsEveryInvalidResponse(t *testing.T) {
	t.Parallel()
	good := `{"error":{"code":"not_found","message":"No."}}`
	for _, row := range []struct {
		name    string
		status  int
		body    string
		headers []string
		fails   bool
	}{
		{"4xx with the error body", 404, good, []string{"Service-Version", "Content-Type"}, false},
		{"2xx", 200, `{}`, []string{"Service-Version", "Content-Type"}, false},
		{"500", 500, good, []string{"Service-Version", "Content-Type"}, true},
		{"503", 503, good, []string{"Service-Version", "Content-Type"}, true},
		{"301", 301, good, []string{"Service-Version", "Content-Type"}, true},
		{"4xx without a body", 404, ``, []string{"Service-Version", "Content-Type"}, true},
		{"4xx without a message", 404, `{"error":{"code":"not_found"}}`, []string{"Service-Version", "Content-Type"}, true},
		{
			"4xx with a very long message", 422, `{"error":{"code":"a","message":"` + strings.Repeat("x", 5000) + `"}}`,
			[]string{"Service-Version", "Content-Type"}, true,
		},
		{"no header Service-Version", 404, good, []string{"Content-Type"}, true},
		{"no header Content-Type", 404, good, []string{"Service-Version"}, true},
	} {
		answer := httptest.NewRecorder()
		for _, name := range row.headers {
			answer.Header().Set(name, map[string]string{"Service-Version": "2026-06-04", "Content-Type": "application/json"}[name])
		}
		answer.WriteHeader(row.status)
		_, _ = answer.WriteString(row.body)
		judge := &judged{TB: t}
		testkit.MustAnswer(judge, httptest.NewRequest(http.MethodGet, "/", nil), answer)
		if judge.failed != row.fails {
			t.Errorf("%s: failed = %v, want %v", row.name, judge.failed, row.fails)
		}
	}
}

func TestMutations_ChangeOneFieldAtATime(t *testing.T) {
	t.Parallel()
	got := testkit.Mutations(`{"a":1,"b":"x"}`)
	for _, want := range []string{`{"b":"x"}`, `{"b":"x","a":null}`, `{"a":1,"b":1e999999}`, `{"a":1,"b":"x","a":1}`, `{"a":1,`} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not among the mutations", want)
		}
	}
}

func TestRequest_RejectsTargetsThatNetHTTPRejects(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]bool{"/v1/calls?a=b": true, "/a%zz": false, "/a b": false, "v1/calls": false, "http://other/v1": false, "/%2e%2e": true} {
		if _, ok := testkit.Request(t, http.MethodGet, target, nil); ok != want {
			t.Errorf("%q = %v, want %v", target, ok, want)
		}
	}
}
