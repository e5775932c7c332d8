package httpserver_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
)

func TestCheckIfMatch_AcceptsOnlyTheStoredVersion(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		header []string
		ok     bool
	}{
		"no header":         {header: nil, ok: true},
		"the version":       {header: []string{`"7"`}, ok: true},
		"every version":     {header: []string{"*"}, ok: true},
		"a list":            {header: []string{`"6", "7"`}, ok: true},
		"two headers":       {header: []string{`"6"`, `"7"`}, ok: true},
		"an older version":  {header: []string{`"6"`}},
		"a part of the tag": {header: []string{`7`, `"77"`}},
		"a weak tag":        {header: []string{`W/"7"`}},
		"an empty header":   {header: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPatch, "/", http.NoBody)
			r.Header["If-Match"] = tt.header
			err := httpserver.CheckIfMatch(r, 7)
			if tt.ok {
				if err != nil {
					t.Errorf("error = %v, want none", err)
				}
				return
			}
			refused, ok := err.(*apierr.Error) //nolint:errorlint // the function returns the error without a wrapper
			if !ok {
				t.Fatalf("error = %v, want a refusal", err)
			}
			if refused.Status != http.StatusPreconditionFailed {
				t.Errorf("status = %d, want 412", refused.Status)
			}
			if refused.Code != "precondition_failed" {
				t.Errorf("code = %s, want precondition_failed", refused.Code)
			}
		})
	}
}

func TestSetETag_SetsTheQuotedVersion(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	httpserver.SetETag(w, 7)
	if got, want := w.Header().Get("ETag"), `"7"`; got != want {
		t.Errorf("ETag = %s, want %s", got, want)
	}
}
