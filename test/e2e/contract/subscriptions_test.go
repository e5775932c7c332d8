package contract

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"ringfence.dev/test/kit"
)

const (
	subscriptions = "/v1/webhook-subscriptions"
	deliveries    = "/v1/webhook-deliveries"
)

func subscription(address string) set {
	return set{"name": "n", "url": address, "events": []string{"call.completed"}}
}

func (w *tenant) active(t *testing.T) int {
	t.Helper()
	return strings.Count(w.read.want(t, 200, "GET", subscriptions+"?limit=100", nil).body, `"status":"active"`)
}

func TestSubscriptions_ConcurrentChangesLeaveAtMostFiveActive(t *testing.T) {
	w := workspace(t)
	clients := newClients(t, w.write.key, 20)
	create := func(_ int, c *client) answer {
		return c.send(t, "POST", subscriptions, subscription("https://127.0.0.1:1/x"))
	}
	made := runParallel(clients, create)
	if got := countAnswers(made); !maps.Equal(got, map[string]int{"201": 5, "409 subscription_limit_reached": 15}) {
		t.Errorf("20 at once = %v, want 5 × 201 and 15 × 409", got)
	}
	var paused []string
	for round := range 4 {
		for _, id := range w.read.want(t, 200, "GET", subscriptions+"?limit=100", nil).ids() {
			w.write.want(t, 200, "PATCH", subscriptions+"/"+id, set{"status": "paused"})
			if round == 0 {
				paused = append(paused, id)
			}
		}
		// Half of the clients create subscriptions. The other clients resume paused subscriptions, two
		// clients per subscription.
		answers := runParallel(clients, func(i int, c *client) answer {
			if i%2 == 0 {
				return create(i, c)
			}
			return c.send(t, "PATCH", subscriptions+"/"+paused[i/2%len(paused)], set{"status": "active"})
		})
		got := countAnswers(answers)
		if n := w.active(t); n != 5 {
			t.Errorf("round %d: %d are active after %v, want 5", round, n, got)
		}
		if got["201"]+got["200"]+got["409 subscription_limit_reached"] != len(answers) {
			t.Errorf("round %d: answers = %v, want 201, 200 and 409 alone", round, got)
		}
	}
	// Five subscriptions are active, which is the maximum. An active subscription can be changed,
	// and a paused one cannot be resumed. After a deletion, exactly one subscription can be
	// created.
	for _, id := range w.read.want(t, 200, "GET", subscriptions+"?limit=100", nil).ids() {
		got := w.write.send(t, "PATCH", subscriptions+"/"+id,
			set{"status": "active", "events": []string{"call.busy", "webhook.test"}})
		if got.status != 200 && got.code() != "subscription_limit_reached" {
			t.Errorf("PATCH = %d %s", got.status, got.body)
		}
		if got.status == 200 {
			w.write.want(t, 200, "DELETE", subscriptions+"/"+id, nil)
			w.write.want(t, 201, "POST", subscriptions, subscription("https://127.0.0.1:1/y"))
			w.write.refused(t, 409, "subscription_limit_reached", "POST", subscriptions, subscription("https://127.0.0.1:1/y"))
		}
	}
}

func TestSubscriptions_PatchRefusesInvalidChanges(t *testing.T) {
	w := workspace(t)
	made := w.write.want(t, 201, "POST", subscriptions, set{"name": "n", "url": "https://127.0.0.1:1/x", "events": []string{"webhook.test"}, "description": "d"})
	path := subscriptions + "/" + made.text("id")
	for status, code := range map[string]string{"failed": "invalid_action", "deleted": "invalid_status", "": "invalid_status", "Active": "invalid_status"} {
		w.write.refused(t, 422, code, "PATCH", path, set{"status": status})
	}
	w.write.refused(t, 422, "invalid_status", "PATCH", path, set{"status": 1})
	w.write.refused(t, 422, "validation_error", "PATCH", path, set{"events": "call.completed"})
	w.write.refused(t, 422, "invalid_url", "PATCH", path, set{"url": "http://127.0.0.1/"})
	w.write.refused(t, 422, "no_events", "PATCH", path, set{"events": []string{}})
	w.write.refused(t, 422, "invalid_event_type", "PATCH", path, set{"events": []string{"call.exploded"}})
	before := w.read.want(t, 200, "GET", subscriptions, nil)
	if !strings.Contains(before.body, `"events":["webhook.test"]`) {
		t.Errorf("after refused changes: before.body = %q, want it to contain %q", before.body, `"events":["webhook.test"]`)
	} else if !strings.Contains(before.body, `"status":"active"`) {
		t.Errorf("after refused changes: before.body = %q, want it to contain %q", before.body, `"status":"active"`)
	}
	w.write.want(t, 200, "PATCH", path, set{"status": "paused", "url": "https://127.0.0.1:1/z"})
	w.write.refused(t, 409, "subscription_not_active", "POST", path+"/test", nil)
	w.read.refused(t, 403, "missing_scope", "PATCH", path, set{"status": "active"})
	if got := w.write.want(t, 200, "PATCH", path, set{"status": "active"}); got.text("url") != "https://127.0.0.1:1/z" {
		t.Errorf(`PATCH: got.text("url") = %q, want "https://127.0.0.1:1/z"; got.body = %s`, got.text("url"), got.body)
	} else if got.text("status") != "active" {
		t.Errorf(`PATCH: got.text("status") = %q, want "active"; got.body = %s`, got.text("status"), got.body)
	}
}

// testDelivery is one requested event webhook.test. The secret is the newest at the time of the
// request.
type testDelivery struct {
	event  string
	newest int
}

// TestSubscriptions_RotationSignsWithTheNewSecret requests test deliveries while the secret is
// rotated repeatedly. After the response to a rotation, each requested delivery must be signed with
// the secret in that response or with a newer secret.
func TestSubscriptions_RotationSignsWithTheNewSecret(t *testing.T) {
	w := workspace(t)
	hooks := stack(t).Hooks
	made := w.write.want(t, 201, "POST", subscriptions, subscription(hooks.URL+"/"+w.id))
	path := subscriptions + "/" + made.text("id")
	secrets := []string{made.text("signing_secret")}
	masked := regexp.MustCompile(`"signing_secret":"whsec_…` + regexp.QuoteMeta(secrets[0][len(secrets[0])-4:]) + `"`)
	if list := w.read.want(t, 200, "GET", subscriptions, nil).body; !masked.MatchString(list) {
		t.Error("list: masked.MatchString(list) = false, want true")
	} else if strings.Contains(list, secrets[0]) {
		t.Errorf("list = %q, want it without %q", list, secrets[0])
	}
	if made.header.Get("Cache-Control") != "no-store" {
		t.Errorf(`creation: made.header.Get("Cache-Control") = %q, want "no-store"; made.body = %s`,
			made.header.Get("Cache-Control"), made.body)
	} else if !strings.HasPrefix(secrets[0], "whsec_") {
		t.Errorf(`creation: secrets[0] = %q, want it to begin with "whsec_"; made.body = %s`, secrets[0], made.body)
	}
	var mu sync.Mutex
	var asked []testDelivery
	done := make(chan struct{})
	var asking sync.WaitGroup
	for _, c := range newClients(t, w.write.key, 4) {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				mu.Lock()
				newest := len(secrets) - 1
				mu.Unlock()
				got := c.send(t, "POST", path+"/test", nil)
				if got.status != 202 {
					t.Errorf("test = %d %s", got.status, got.body)
					return
				}
				mu.Lock()
				asked = append(asked, testDelivery{got.text("event_id"), newest})
				mu.Unlock()
			}
		})
	}
	for range 20 {
		rotated := w.write.want(t, 200, "POST", path+"/rotate-secret", nil)
		if rotated.header.Get("Cache-Control") != "no-store" {
			t.Errorf(`rotation: rotated.header.Get("Cache-Control") = %q, want "no-store"; rotated.body = %s`,
				rotated.header.Get("Cache-Control"), rotated.body)
		} else if rotated.text("store_this") == "" {
			t.Errorf(`rotation: rotated.text("store_this") is empty, want a value; rotated.body = %s`, rotated.body)
		}
		mu.Lock()
		secrets = append(secrets, rotated.text("signing_secret"))
		newest, before := rotated.text("signing_secret"), len(asked)
		mu.Unlock()
		// Wait for a delivery before the next rotation, so that each secret is used.
		until(t, "a test delivery has arrived after the rotation", func() bool {
			mu.Lock()
			enough := len(asked) >= before+8
			mu.Unlock()
			return enough && slices.ContainsFunc(hooks.Deliveries(w.id), func(d kit.Delivery) bool { return signs(newest, d.Signature, d.Body) })
		})
	}
	close(done)
	asking.Wait()
	mustHaveSigned(t, w, secrets, asked)
}

func mustHaveSigned(t *testing.T, w *tenant, secrets []string, asked []testDelivery) {
	t.Helper()
	hooks := stack(t).Hooks
	until(t, "every test arrives", func() bool {
		arrived := map[string]bool{}
		for _, d := range hooks.Deliveries(w.id) {
			arrived[d.EventID] = true
		}
		return !slices.ContainsFunc(asked, func(one testDelivery) bool { return !arrived[one.event] })
	})
	signedWith, used := map[string]int{}, map[int]bool{}
	for _, d := range hooks.Deliveries(w.id) {
		signedWith[d.EventID] = -1
		for i, secret := range secrets {
			if signs(secret, d.Signature, d.Body) {
				signedWith[d.EventID] = i
				used[i] = true
			}
		}
	}
	for _, one := range asked {
		with, arrived := signedWith[one.event]
		if !arrived {
			t.Error("arrived = false, want true")
		} else if with < one.newest {
			t.Errorf("with = %v, want at least %v", with, one.newest)
		}
	}
	t.Logf("%d deliveries over %d secrets, %d of them used", len(asked), len(secrets), len(used))
	if len(used) < 5 {
		t.Errorf("only %d secrets signed anything: the rotations met no delivery", len(used))
	}
}

func signs(secret, header string, body []byte) bool {
	stamp, mac, _ := strings.Cut(strings.TrimPrefix(header, "t="), ",v1=")
	h := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(h, "%s.%s", stamp, body)
	return hex.EncodeToString(h.Sum(nil)) == mac
}
