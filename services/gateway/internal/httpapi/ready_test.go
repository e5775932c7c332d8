package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAdmin_ListsWhichServicesAreReady(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"status":"ok","version":"1.2.0"}`))
	}))
	defer up.Close()
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(503)
		_, _ = w.Write([]byte(`{"status":"unready","version":"1.1.0"}`))
	}))
	defer down.Close()
	_, admin := r.replica([]string{"dialer=" + down.URL, "calls=" + up.URL, "calls=" + down.URL})
	got := send(t, http.MethodGet, admin.URL+"/admin/v1/services", operatorToken, "", nil)
	if got.status != http.StatusOK {
		t.Errorf("status = %d, want %d", got.status, http.StatusOK)
	}
	want := `{"version":"devel","services":[{"name":"calls","ready":true,"versions":["1.1.0","1.2.0"]},` +
		`{"name":"dialer","ready":false,"versions":["1.1.0"]}]}`
	if body := strings.TrimSpace(got.body); body != want {
		t.Errorf("body = %s, want %s", body, want)
	}
}
