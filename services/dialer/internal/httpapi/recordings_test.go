package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/services/dialer/internal/httpapi"
	"ringfence.dev/services/dialer/internal/recordings"
)

func emptyRecordings(t testing.TB) httpapi.Recordings {
	t.Helper()
	files, err := recordings.NewDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	links, err := recordingstore.NewLinks(
		recordingstore.Storage{LinkKeys: []string{base64.StdEncoding.EncodeToString(make([]byte, 32))}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return httpapi.Recordings{Enabled: true, Files: files, Links: links}
}

// fetch sends the request that the gateway sends for a client with a link.
func (o fixture) fetch(t *testing.T, method, target, ranges string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequest(method, target, nil)
	token, err := o.gateway.SignCaller(
		"dialer",
		serviceauth.Caller{RequestID: uuid.Must(uuid.NewV7()), Access: serviceauth.Read},
	)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(serviceauth.CallerHeader, token)
	if ranges != "" {
		request.Header.Set("Range", ranges)
	}
	answer := httptest.NewRecorder()
	o.handler.ServeHTTP(answer, request)
	return answer
}

func TestRecording_IsServedOnlyForAValidLink(t *testing.T) {
	t.Parallel()
	o := open(t)
	now := time.Now()
	key, gone := recordingstore.Key(o.workspace, uuid.New(), now), recordingstore.Key(o.workspace, uuid.New(), now)
	body := bytes.Repeat([]byte("RIFFsound"), 1000)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.recordings.Files.Put(t.Context(), key, file); err != nil {
		t.Fatal(err)
	}
	good := o.recordings.Links.Sign(key, now)
	whole := o.fetch(t, "GET", good, "")
	switch {
	case whole.Code != http.StatusOK:
		t.Errorf("whole.Code = %v, want %v", whole.Code, http.StatusOK)
	case !bytes.Equal(whole.Body.Bytes(), body):
		t.Errorf("whole.Body.Bytes() = %v, want %v", whole.Body.Bytes(), body)
	case whole.Header().Get("Content-Type") != "audio/wav":
		t.Errorf(`whole.Header().Get("Content-Type") = %v, want "audio/wav"`,
			whole.Header().Get("Content-Type"))
	case whole.Header().Get("Cache-Control") != "private, no-store":
		t.Errorf(`whole.Header().Get("Cache-Control") = %v, want "private, no-store"`,
			whole.Header().Get("Cache-Control"))
	case !strings.Contains(whole.Header().Get("Content-Disposition"), filepath.Base(key)):
		t.Error(`strings.Contains(whole.Header().Get("Content-Disposition"), filepath.Base(key)) = false, want true`)
	}
	switch part := o.fetch(t, "GET", good, "bytes=4-8"); {
	case part.Code != http.StatusPartialContent:
		t.Errorf("part.Code = %v, want %v", part.Code, http.StatusPartialContent)
	case part.Body.String() != "sound":
		t.Errorf(`part.Body.String() = %v, want "sound"`, part.Body.String())
	case part.Header().Get("Content-Range") != "bytes 4-8/9000":
		t.Errorf(`part.Header().Get("Content-Range") = %v, want "bytes 4-8/9000"`,
			part.Header().Get("Content-Range"))
	}
	switch head := o.fetch(t, "HEAD", good, ""); {
	case head.Code != http.StatusOK:
		t.Errorf("head.Code = %v, want %v", head.Code, http.StatusOK)
	case head.Body.Len() != 0:
		t.Errorf("head.Body.Len() = %v, want 0", head.Body.Len())
	case head.Header().Get("Content-Length") != "9000":
		t.Errorf(`head.Header().Get("Content-Length") = %v, want "9000"`,
			head.Header().Get("Content-Length"))
	}
	link, err := url.Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"that has expired":                           o.recordings.Links.Sign(key, now.Add(-recordingstore.LinkLife)),
		"with the query of another recording's link": recordingstore.Path + gone + "?" + link.RawQuery,
		"without a signature":                        recordingstore.Path + key,
		"to a deleted recording":                     o.recordings.Links.Sign(gone, now),
		"to a file outside the directory":            recordingstore.Path + "../x?" + link.RawQuery,
		"to an invalid key":                          o.recordings.Links.Sign("x", now),
		"with a changed expiry":                      strings.Replace(good, "expires=", "expires=9", 1),
		"with a changed signature":                   strings.Replace(good, "signature=", "signature=00", 1),
	} {
		if got := o.fetch(t, "GET", target, ""); got.Code != http.StatusNotFound {
			t.Errorf("a link %s: got.Code = %v, want %v", name, got.Code, http.StatusNotFound)
		} else if !strings.Contains(got.Body.String(), `"not_found"`) {
			t.Errorf("a link %s: got.Body = %q, want it to contain %q", name, got.Body.String(), `"not_found"`)
		}
	}
	unauthenticated := httptest.NewRecorder()
	o.handler.ServeHTTP(unauthenticated, httptest.NewRequest("GET", good, nil))
	if unauthenticated.Code != http.StatusUnauthorized {
		t.Errorf("status of a request without the gateway's token = %d", unauthenticated.Code)
	}
}
