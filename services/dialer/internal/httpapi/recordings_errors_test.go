package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/libs/serviceauth"
)

// http.ServeContent can refuse range requests and conditional requests.
func TestRecording_ErrorsHaveTheErrorBodyOfTheAPI(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		header string
		value  string
		status int
		code   string // empty if the response has no body
	}{
		{
			name: "range beyond the end of the file", header: "Range", value: "bytes=9000-",
			status: http.StatusRequestedRangeNotSatisfiable, code: "range_not_satisfiable",
		},
		{
			name: "malformed range", header: "Range", value: "bytes=x",
			status: http.StatusRequestedRangeNotSatisfiable, code: "range_not_satisfiable",
		},
		{
			name:   "If-Unmodified-Since before the last change",
			header: "If-Unmodified-Since", value: "Mon, 01 Jan 2001 00:00:00 GMT",
			status: http.StatusPreconditionFailed, code: "precondition_failed",
		},
		{
			name: "If-Modified-Since after the last change", header: "If-Modified-Since", value: "Mon, 01 Jan 2103 00:00:00 GMT",
			status: http.StatusNotModified,
		},
	}
	o := open(t)
	now := time.Now()
	key, file := recordingstore.Key(o.workspace, uuid.New(), now), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 9000), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.recordings.Files.Put(t.Context(), key, file); err != nil {
		t.Fatal(err)
	}
	link := o.recordings.Links.Sign(key, now)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			request := httptest.NewRequest("GET", link, nil)
			token, err := o.gateway.SignCaller(
				"dialer",
				serviceauth.Caller{RequestID: uuid.Must(uuid.NewV7()), Access: serviceauth.Read},
			)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set(serviceauth.CallerHeader, token)
			request.Header.Set(test.header, test.value)
			response := httptest.NewRecorder()
			o.handler.ServeHTTP(response, request)
			if response.Code != test.status {
				t.Errorf("status = %d, want %d", response.Code, test.status)
			}
			if test.code == "" {
				if response.Body.Len() != 0 {
					t.Errorf("body = %q, want none", response.Body)
				}
				return
			}
			wantErrorBody(t, response, test.code)
		})
	}
}

// wantErrorBody checks that the response has the API's error body, and no header of a recording.
func wantErrorBody(t *testing.T, response *httptest.ResponseRecorder, code string) {
	t.Helper()
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(response.Body.Bytes(), &body); err != nil {
		t.Fatalf("body %q: %v", response.Body, err)
	}
	if body.Error.Code != code {
		t.Errorf("code = %q, want %q", body.Error.Code, code)
	}
	if body.Error.Message == "" {
		t.Error("message is empty")
	}
	if got := response.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type = %q, want application/json", got)
	}
	if got := response.Header().Get("Content-Disposition"); got != "" {
		t.Errorf("Content-Disposition = %q, want none", got)
	}
}
