package stack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// If a child ends maxExits times before the stack is ready, the start fails.
const maxExits = 4

// awaitReady waits for the probe of every replica, and then for the probe of the gateway, which
// covers all services.
func (s *stack) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	probes := map[string]string{}
	for _, svc := range services() {
		for replica := 1; replica <= s.replicas; replica++ {
			probes[fmt.Sprintf("%s (%d)", svc.name, replica)] = "http://" + loopback(s.state.Ports[privatePort(svc.name, replica)]) + "/readyz"
		}
	}
	probes["simcarrier"] = s.simURL() + "/healthz"
	probes["calls end to end"] = s.baseURL() + "/readyz"
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{Proxy: nil}}
	defer client.CloseIdleConnections()
	reported := time.Now()
	for len(probes) > 0 {
		lastAnswer := ""
		for name, probe := range probes {
			ok, answer := ask(ctx, client, probe)
			if ok {
				delete(probes, name)
			} else if name == "calls end to end" {
				lastAnswer = answer
			}
		}
		if len(probes) == 0 {
			return nil
		}
		if time.Since(reported) > 5*time.Second {
			reported = time.Now()
			s.Console.Say("waiting for %s", names(probes))
		}
		if name := s.dying(); name != "" {
			if full := CheckRoom(s.Home.Dir); full != nil {
				return full
			}
			return fmt.Errorf("%s ends again and again; its output is above", name)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready after %s: %s %s", readyTimeout, names(probes), lastAnswer)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

func ask(ctx context.Context, client *http.Client, url string) (ok bool, answer string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	return resp.StatusCode == http.StatusOK, strings.TrimSpace(string(body))
}

func (s *stack) dying() string {
	for _, rank := range s.ranks {
		for _, child := range rank {
			if child.Exits() >= maxExits {
				return child.Name()
			}
		}
	}
	return ""
}

func names(probes map[string]string) string {
	var all []string
	for name := range probes {
		all = append(all, strings.TrimSuffix(name, " (1)"))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
