package compose_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestCharts_AutoscalingKeepsTheNumberOfReplicas(t *testing.T) {
	t.Parallel()
	const enabled = "autoscaling.enabled=true,autoscaling.min=3,autoscaling.max=6"
	for _, row := range []struct {
		name, set string
		live      map[string]int // the number of running replicas of each workload in the cluster
		want      int
	}{
		{name: "autoscaling is off", set: "replicas=4", live: map[string]int{"calls": 5}, want: 4},
		{name: "autoscaling is on, five replicas run", set: enabled, live: map[string]int{"calls": 5}, want: 5},
		{name: "autoscaling is on, fewer replicas than min run", set: enabled, live: map[string]int{"calls": 2}, want: 2},
		{name: "first installation, no replica runs", set: enabled, want: 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			args := append(requiredArgs(t, "calls"),
				"--set", row.set, "--dry-run=server", "--kubeconfig", kubeconfig(t, row.live))
			if got := replicasOf(t, manifests(t, "calls", args...), "calls"); got != row.want {
				t.Errorf("replicas of calls = %d, want %d", got, row.want)
			}
		})
	}
}

// helm template has no cluster, so the chart cannot look up the running replicas.
func TestCharts_AutoscalingWithoutAClusterStartsWithMinReplicas(t *testing.T) {
	t.Parallel()
	rendered := manifests(t, "dialer",
		append(requiredArgs(t, "dialer"), "--set", "autoscaling.enabled=true,autoscaling.min=3")...)
	if got := replicasOf(t, rendered, "dialer"); got != 3 {
		t.Errorf("replicas of dialer = %d, want 3", got)
	}
}

// replicasOf returns spec.replicas of the Deployment or StatefulSet with that name, or -1 if the
// manifest does not set it.
func replicasOf(t *testing.T, rendered []byte, name string) int {
	t.Helper()
	documents := yaml.NewDecoder(strings.NewReader(string(rendered)))
	for {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct{ Replicas *int }
		}
		if err := documents.Decode(&o); err != nil {
			t.Fatalf("workload %s is not among the manifests: %v", name, err)
		}
		if (o.Kind == "Deployment" || o.Kind == "StatefulSet") && o.Metadata.Name == name {
			if o.Spec.Replicas == nil {
				return -1
			}
			return *o.Spec.Replicas
		}
	}
}

// kubeconfig returns a file that connects helm to a fake API server. The server serves only the
// requests of helm's lookup: the versions, the resources of apps/v1 and one Deployment.
func kubeconfig(t *testing.T, live map[string]int) (path string) {
	t.Helper()
	respond := func(w http.ResponseWriter, status int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, map[string]any{"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
	})
	mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, map[string]any{"kind": "APIVersions", "versions": []string{}})
	})
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) {
		version := map[string]any{"groupVersion": "apps/v1", "version": "v1"}
		respond(w, http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{
			map[string]any{"name": "apps", "versions": []any{version}, "preferredVersion": version},
		}})
	})
	mux.HandleFunc("GET /apis/apps/v1", func(w http.ResponseWriter, _ *http.Request) {
		resource := func(name, kind string) map[string]any {
			return map[string]any{"name": name, "kind": kind, "namespaced": true, "verbs": []string{"get", "list"}}
		}
		respond(w, http.StatusOK, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1",
			"resources": []any{resource("deployments", "Deployment"), resource("statefulsets", "StatefulSet")}})
	})
	mux.HandleFunc("GET /apis/apps/v1/namespaces/default/deployments/{name}",
		func(w http.ResponseWriter, r *http.Request) {
			name := r.PathValue("name")
			replicas, found := live[name]
			if !found {
				respond(w, http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
					"reason": "NotFound", "code": http.StatusNotFound})
				return
			}
			respond(w, http.StatusOK, map[string]any{"kind": "Deployment", "apiVersion": "apps/v1",
				"metadata": map[string]any{"name": name}, "spec": map[string]any{"replicas": replicas}})
		})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	path = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: "+
		"[{name: x, context: {cluster: c}}]\ncurrent-context: x\n", server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
