package contract

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestKeys_AreStoredAsKeyedHashes(t *testing.T) {
	w := workspace(t)
	made := w.operator.want(t, 201, "POST", w.admin+"/api-keys", set{"name": "kept", "access": "write"})
	if got := made.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control = %q beside a key, want no-store", got)
	}
	key := made.text("key")
	customer(t, key).want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": number(1)})
	_, secret, _ := strings.Cut(strings.TrimPrefix(key, "rf_live_"), "_")
	if len(secret) < 40 {
		t.Fatalf("key = %q, want rf_live_<prefix>_<secret>", key)
	}
	var state struct {
		Pepper string `json:"api_key_pepper"`
	}
	data, err := os.ReadFile(filepath.Join(stack(t).Home, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	if json.Unmarshal(data, &state) != nil {
		t.Errorf("json.Unmarshal(data, &state) = %v, want nil", json.Unmarshal(data, &state))
	}
	if state.Pepper == "" {
		t.Errorf("state.Pepper = %v, want a value", state.Pepper)
	}
	if t.Failed() {
		t.FailNow()
	}
	mac := hmac.New(sha256.New, []byte(state.Pepper))
	mac.Write([]byte(key))
	all := keyForms(key, secret)
	const kept = "the key's HMAC"
	all[kept] = hex.EncodeToString(mac.Sum(nil))
	found := tablesContaining(t, slices.Collect(maps.Values(all)))
	for what, needle := range all {
		if what != kept && len(found[needle]) != 0 {
			t.Errorf("%s is in %v", what, found[needle])
		}
	}
	if where := found[all[kept]]; !slices.Equal(where, []string{"gateway.api_keys"}) {
		t.Errorf("%s is in %v, want gateway.api_keys alone", kept, where)
	}
	log, err := os.ReadFile(filepath.Join(stack(t).Home, "stack.log"))
	if err != nil {
		t.Errorf("os.ReadFile: %v", err)
	} else if strings.Contains(string(log), secret) {
		t.Errorf("log = %q, want it without %q", string(log), secret)
	}
	for _, path := range []string{"/api-keys", "/api-keys/" + made.text("id")} {
		if got := w.operator.want(t, 200, "GET", w.admin+path, nil); strings.Contains(got.body, secret) {
			t.Errorf("GET %s shows the key again", path)
		}
	}
}

// keyForms returns the forms in which a key must not be stored: as plain text or as an unkeyed
// hash.
func keyForms(key, secret string) map[string]string {
	all := map[string]string{}
	for name, text := range map[string]string{"the key": key, "its secret part": secret} {
		sum1, sum256, sum512, sum5 := sha1.Sum([]byte(text)), sha256.Sum256([]byte(text)), sha512.Sum512([]byte(text)), md5.Sum([]byte(text))
		all[name] = text
		for how, raw := range map[string][]byte{"bytes": []byte(text), "SHA-1": sum1[:], "SHA-256": sum256[:], "SHA-512": sum512[:], "MD5": sum5[:]} {
			all[name+"'s "+how+" in hex"] = hex.EncodeToString(raw)
			all[name+"'s "+how+" in base64"] = base64.StdEncoding.EncodeToString(raw)
		}
	}
	return all
}

// tablesContaining maps each text to the tables that contain it. Bytes are compared as hex.
func tablesContaining(t *testing.T, texts []string) map[string][]string {
	t.Helper()
	conn := database(t)
	column := func(sql string, args ...any) []string {
		rows, err := conn.Query(t.Context(), sql, args...)
		if err != nil {
			t.Fatal(err)
		}
		values, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	tables := map[string][]string{}
	for _, table := range column(`SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1`) {
		for _, text := range column("SELECT DISTINCT text FROM (SELECT t::text AS line FROM "+table+" t OFFSET 0) t, unnest($1::text[]) text WHERE position(text IN line) > 0", texts) {
			tables[text] = append(tables[text], table)
		}
	}
	return tables
}

type ending struct {
	name    string
	change  func(*tenant)
	status  int
	code    string
	clients []*client
	changed time.Time
}

// TestKeys_RevocationAppliesOnAllReplicasIn5s ends the access of several keys. Until 5 s after each
// change, it sends requests every 100 ms. The requests use many connections, so that they reach
// both replicas.
func TestKeys_RevocationAppliesOnAllReplicasIn5s(t *testing.T) {
	endings := []*ending{
		{name: "a revoked key", status: 401, code: "invalid_api_key", change: func(w *tenant) {
			w.operator.want(t, 200, "DELETE", w.admin+"/api-keys/"+w.writeID, nil)
		}},
		{name: "a suspended workspace", status: 403, code: "api_not_enabled", change: func(w *tenant) {
			w.operator.want(t, 200, "PATCH", w.admin, set{"status": "suspended"})
		}},
		{name: "a plan without API access", status: 403, code: "api_not_enabled", change: func(w *tenant) {
			w.operator.want(t, 200, "PATCH", w.admin, set{"plan": "starter"})
		}},
	}
	// The operator uses one connection, so one replica makes all changes. The other replica must
	// read the changes.
	through := operator(t)
	for _, e := range endings {
		w := workspace(t)
		w.operator = through
		e.clients = newClients(t, w.write.key, 12)
		if got := countAnswers(runParallel(e.clients, e.ask(t))); got["200"] != len(e.clients) {
			t.Fatalf("%s: before = %v", e.name, got)
		}
		e.change(w)
		e.changed = time.Now()
	}
	var all sync.WaitGroup
	for _, e := range endings {
		all.Go(func() { e.watch(t) })
	}
	all.Wait()
}

func (e *ending) ask(t *testing.T) func(int, *client) answer {
	return func(_ int, c *client) answer { return c.send(t, "GET", "/v1/call-requests", nil) }
}

func (e *ending) watch(t *testing.T) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var holds time.Time
	for asked := e.changed; asked.Before(e.changed.Add(5300 * time.Millisecond)); asked = <-tick.C {
		open := 0
		for _, a := range runParallel(e.clients, e.ask(t)) {
			switch {
			case a.status == http.StatusOK:
				open++
			case a.status != e.status || a.code() != e.code:
				t.Errorf("%s: %d %s, want 200 or %d %s", e.name, a.status, a.body, e.status, e.code)
				return
			}
		}
		if open > 0 && asked.After(e.changed.Add(5*time.Second)) {
			t.Errorf("%s: %d of %d connections were let in %s after it", e.name, open, len(e.clients), asked.Sub(e.changed))
		}
		switch {
		case open > 0:
			holds = time.Time{}
		case holds.IsZero():
			holds = asked
		}
	}
	t.Logf("%s: it held everywhere after %s", e.name, holds.Sub(e.changed).Round(time.Millisecond))
}

func TestKeys_ChangedOrMisplacedKeyGets401(t *testing.T) {
	w := workspace(t)
	key := w.read.key
	anonymous := customer(t, "")
	for _, header := range [][]string{
		{"Authorization", key}, {"Authorization", "Basic " + key}, {"Authorization", "Bearer " + key + "a"}, {"Authorization", "Bearer " + key[:len(key)-1]},
		{"Authorization", "Bearer " + strings.ToUpper(key)}, {"Authorization", "Bearer \"" + key + "\""}, {"Authorization", "Bearer " + key + ", Bearer " + key},
		{"Authorization", "Bearer " + key, "Authorization", "Bearer " + key}, {"X-Api-Key", key}, {"Cookie", "api_key=" + key},
		{"Authorization", "Bearer " + w.operator.key}, {"Authorization", "Bearer"}, {"Authorization", "Bearer " + strings.Repeat("x", 10_000)},
	} {
		got := anonymous.refused(t, 401, "invalid_api_key", "GET", "/v1/wallet", nil,
			append(header, forwardedHeader, "203.0.113.90")...)
		if strings.Contains(got.body, key) {
			t.Errorf("%.60q: the answer repeats the key", header)
		}
	}
	anonymous.refused(t, 401, "invalid_api_key", "GET", "/v1/wallet?api_key="+key+"&access_token="+key, nil,
		forwardedHeader, "203.0.113.90")
	anonymous.want(t, 200, "GET", "/v1/wallet", nil, "Authorization", "bearer  "+key)
	w.operator.want(t, 200, "GET", w.admin+"/api-keys", nil)
	(&client{base: w.operator.base, key: key, http: w.operator.http}).refused(t, 401, "invalid_api_key", "GET", w.admin+"/api-keys", nil)
}
