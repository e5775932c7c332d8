package webhooks_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestResealing_RotatesTheKeyDuringDeliveries executes the steps of a key rotation: a start with
// both keys, reseal during deliveries, and a start with only the new key.
func TestResealing_RotatesTheKeyDuringDeliveries(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the whole stack is not started")
	}
	before, after := "before="+sealingKey(t), "after="+sealingKey(t)
	w, err := begin("SEALING_KEYS=" + before)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.End(!t.Failed()); err != nil {
			t.Errorf("end the stack: %v", err)
		}
	})
	hooks := make([]*endpoint, 4)
	customers := make([]*customer, len(hooks))
	for i := range customers {
		hooks[i] = w.receive(t)
		customers[i] = w.customer(t, hooks[i].URL)
	}
	signed := func() {
		t.Helper()
		for i, c := range customers {
			events := terminalEvents(t, c.ID, 1)
			w.publish(t, events...)
			until(t, "a delivery arrives", func() bool { return len(hooks[i].requestsFor(events[0].id)) > 0 })
			if r := hooks[i].requestsFor(events[0].id)[0]; !r.signedWith(c.secret) {
				t.Errorf("the delivery at customer %d is not signed by its secret", i+1)
			}
		}
	}
	again := func(keys string) {
		t.Helper()
		if err := errors.Join(w.Stop(), w.start("SEALING_KEYS="+keys)); err != nil {
			t.Fatal(err)
		}
	}
	signed()
	again(after + "," + before)
	signed()
	if output, status := w.reseal(t, after); status != 1 {
		t.Errorf("reseal without the old key: status = %v, want 1", status)
	} else if !strings.Contains(output, `4 sealed with key "before", which is not in SEALING_KEYS`) {
		t.Errorf("reseal without the old key: output = %q, want it to contain %q",
			output, `4 sealed with key "before", which is not in SEALING_KEYS`)
	}
	var rotated struct {
		Secret string `json:"signing_secret"`
	}
	customers[0].must(t, customers[0].API, "POST", customers[0].own+"/rotate-secret", nil, 200, &rotated)
	customers[0].secret = rotated.Secret

	var beside sync.WaitGroup
	done := make(chan struct{})
	published := make([][]event, len(customers))
	for i, c := range customers {
		beside.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(10 * time.Millisecond):
					events := terminalEvents(t, c.ID, 1)
					w.publish(t, events...)
					published[i] = append(published[i], events...)
				}
			}
		})
	}
	for _, want := range []string{"3 secrets resealed, 1 already current, 0 could", "0 secrets resealed, 4 already current, 0 could"} {
		if output, status := w.reseal(t, after+","+before); status != 0 {
			t.Errorf("reseal: status = %v, want 0", status)
		} else if !strings.Contains(output, want) {
			t.Errorf("reseal: output = %q, want it to contain %q", output, want)
		}
	}
	close(done)
	beside.Wait()
	for i, c := range customers {
		until(t, "every delivery of that time arrives", func() bool { return hooks[i].count() >= len(published[i])+2 })
		for _, ev := range published[i] {
			judgeRequests(t, hooks[i].requestsFor(ev.id), c.secret, make([]time.Duration, 4))
		}
	}
	again(after)
	signed()
}

func sealingKey(t *testing.T) string {
	t.Helper()
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(key)
}

// reseal runs `ringfence services reseal` on the stack, which encrypts the stored secrets with the
// new key.
func (w *testStack) reseal(t *testing.T, keys string) (output string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(w.Bin, "ringfence-local"), "service", "webhook-dispatcher", "reseal")
	cmd.Env = append(append(os.Environ(), w.Env...), "RINGFENCE_HOME="+w.Home, "SEALING_KEYS="+keys)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}
