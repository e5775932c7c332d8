package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
)

const (
	// probeTimeout is the timeout of one request to the /readyz of a service.
	probeTimeout = time.Second
	// readyCacheTime is how long a result is reused, so that frequent requests do not overload the
	// services.
	readyCacheTime = 250 * time.Millisecond
)

// Readiness requests the private /readyz of all services. So the /readyz of the gateway shows
// whether calls can be placed end to end.
type Readiness struct {
	probes map[string][]string
	client *http.Client

	mu       sync.Mutex
	failing  []string
	versions map[string][]string // the versions of the replicas of each service
	probedAt time.Time
}

// NewReadiness parses the entries of READY_URLS, which have the form name=url. Entries with the
// same name are replicas of one service. The service is ready if one of its replicas is ready.
func NewReadiness(entries []string) (*Readiness, error) {
	r := &Readiness{probes: map[string][]string{}, client: serviceauth.Client()}
	for _, entry := range entries {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		name, address, _ := strings.Cut(entry, "=")
		probe, err := url.Parse(address)
		if err != nil || name == "" || probe.Host == "" {
			return nil, fmt.Errorf("READY_URLS: %q must be name=http://host:port/readyz", entry)
		}
		if strings.Trim(probe.Path, "/") == "" {
			probe.Path = "/readyz"
		}
		r.probes[name] = append(r.probes[name], probe.String())
	}
	return r, nil
}

func (r *Readiness) answer(w http.ResponseWriter, request *http.Request) error {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		return httpserver.WrongMethod(w, request.Method, http.MethodGet, http.MethodHead)
	}
	w.Header().Set("Cache-Control", "no-store")
	failing, _ := r.probeServices(request.Context())
	if service.IsLeaving(request.Context()) {
		failing = append(slices.Clone(failing), "gateway")
	}
	if len(failing) > 0 {
		refused := apierr.New(http.StatusServiceUnavailable, "unavailable", "Not ready yet: %s.", strings.Join(failing, ", "))
		refused.RetryAfter = time.Second
		return refused
	}
	return httpserver.WriteJSON(w, http.StatusOK, openapi.Readiness{Status: openapi.Ready})
}

// serviceView contains the name of a service, whether one of its replicas is ready, and the
// versions of the replicas that respond.
type serviceView struct {
	Name     string   `json:"name"`
	Ready    bool     `json:"ready"`
	Versions []string `json:"versions"`
}

// listServices handles GET /admin/v1/services. It returns the services of READY_URLS, and the
// version of the replica of the gateway that responds.
func (r *Readiness) listServices(w http.ResponseWriter, request *http.Request) error {
	failing, versions := r.probeServices(request.Context())
	answer := struct {
		Version  string        `json:"version"`
		Services []serviceView `json:"services"`
	}{Version: service.Version(), Services: []serviceView{}}
	for _, name := range slices.Sorted(maps.Keys(r.probes)) {
		answer.Services = append(answer.Services, serviceView{
			Name: name, Ready: !slices.Contains(failing, name), Versions: append([]string{}, versions[name]...),
		})
	}
	return httpserver.WriteJSON(w, http.StatusOK, answer)
}

// probeServices returns the names of the services that are not ready, and the versions of each
// service. Within readyCacheTime, further calls return the same result.
func (r *Readiness) probeServices(ctx context.Context) (failing []string, versions map[string][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.probedAt) < readyCacheTime {
		return r.failing, r.versions
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	var found sync.Mutex
	ready := map[string]bool{}
	versions = map[string][]string{}
	var all sync.WaitGroup
	for name, probes := range r.probes {
		for _, probe := range probes {
			all.Go(func() {
				version, err := r.probe(ctx, probe)
				found.Lock()
				defer found.Unlock()
				if version != "" && !slices.Contains(versions[name], version) {
					versions[name] = append(versions[name], version)
				}
				ready[name] = ready[name] || err == nil
			})
		}
	}
	all.Wait()
	r.failing, r.versions = nil, versions
	for name := range r.probes {
		if !ready[name] {
			r.failing = append(r.failing, name)
		}
		slices.Sort(versions[name])
	}
	slices.Sort(r.failing)
	r.probedAt = time.Now()
	return r.failing, r.versions
}

var errUnready = errors.New("not ready")

// probe returns the version of a replica, or "" if it is unknown, and an error if the replica is
// not ready.
func (r *Readiness) probe(ctx context.Context, address string) (version string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("make probe: %w", err)
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return "", fmt.Errorf("probe: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10)) // without a body, the version is unknown
	var replica struct{ Version string }
	_ = json.Unmarshal(body, &replica)
	if answer.StatusCode != http.StatusOK {
		return replica.Version, errUnready
	}
	return replica.Version, nil
}
