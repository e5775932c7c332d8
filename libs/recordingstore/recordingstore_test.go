package recordingstore_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/recordingstore"
)

func linkKey(fill byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(fill)), 32)))
}

func links(t *testing.T, keys ...string) *recordingstore.Links {
	t.Helper()
	l, err := recordingstore.NewLinks(recordingstore.Storage{LinkKeys: keys, LinkURL: "https://api.example.com/"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestKey_ContainsWorkspaceDayAndCallID(t *testing.T) {
	t.Parallel()
	workspace, call := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	key := recordingstore.Key(workspace, call, time.Date(2026, 11, 21, 23, 59, 0, 0, time.FixedZone("", -3600)))
	if want := workspace.String() + "/2026/11/22/" + call.String() + ".wav"; key != want {
		t.Errorf("key %s, want %s", key, want)
	}
	if !recordingstore.IsKey(key) {
		t.Error("a key of ours is none")
	}
	for _, bad := range []string{"", "/", "../" + key, key + "/", strings.ToUpper(key), strings.Replace(key, "/11/", "/13/", 1), strings.TrimSuffix(key, ".wav"), ".spool/x.wav", strings.Replace(key, "/2026/", "/./", 1)} {
		if recordingstore.IsKey(bad) {
			t.Errorf("%q is taken for a key", bad)
		}
	}
}

func TestLinks_GiveAccessToOneRecordingForAnHour(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	key, other := recordingstore.Key(uuid.New(), uuid.New(), now), recordingstore.Key(uuid.New(), uuid.New(), now)
	old, both := links(t, linkKey('a')), links(t, linkKey('b'), linkKey('a'))
	link, err := url.Parse(old.Sign(key, now))
	if err != nil {
		t.Fatalf("url.Parse: %v", err)
	}
	if link.Scheme+"://"+link.Host+link.Path != "https://api.example.com/recordings/"+key {
		t.Fatalf(`link.Scheme+"://"+link.Host+link.Path = %q, want %q`,
			link.Scheme+"://"+link.Host+link.Path, "https://api.example.com/recordings/"+key)
	}
	forged := url.Values{"expires": {"99999999999"}, "signature": {link.Query().Get("signature")}}
	for _, row := range []struct {
		name  string
		by    *recordingstore.Links
		key   string
		query url.Values
		at    time.Time
		good  bool
	}{
		{"immediately", old, key, link.Query(), now, true},
		{"one second before the expiry", old, key, link.Query(), now.Add(3599 * time.Second), true},
		{"at the expiry", old, key, link.Query(), now.Add(3600 * time.Second), false},
		{"link used for another recording", old, other, link.Query(), now, false},
		{"link with a changed expiry", old, key, forged, now, false},
		{"link without a signature", old, key, url.Values{"expires": {link.Query().Get("expires")}}, now, false},
		{"signed with the old key, after a rotation", both, key, link.Query(), now, true},
		{"checked with an unknown key", links(t, linkKey('c')), key, link.Query(), now, false},
	} {
		if err := row.by.Check(row.key, row.query, row.at); (err == nil) != row.good {
			t.Errorf("%s: %v, want good %v", row.name, err, row.good)
		}
	}
}

func TestStorage_AcceptsOneConfiguredStorageOrNone(t *testing.T) {
	t.Parallel()
	s3 := recordingstore.Storage{URL: "https://s3.example.com", Bucket: "b", AccessKey: "a", SecretKey: "s"}
	path, keyless := s3, s3
	path.PublicURL, keyless.SecretKey = "https://s3.example.com/bucket", ""
	for _, row := range []struct {
		name    string
		storage recordingstore.Storage
		where   recordingstore.Location
		good    bool
	}{
		{"no storage", recordingstore.Storage{}, recordingstore.Nowhere, true},
		{"bucket", s3, recordingstore.S3, true},
		{"local directory", recordingstore.Storage{LinkKeys: []string{linkKey('a')}}, recordingstore.Local, true},
		{
			"bucket and local directory", recordingstore.Storage{URL: s3.URL, LinkKeys: []string{linkKey('a')}},
			recordingstore.Nowhere, false,
		},
		{"public URL with a path", path, recordingstore.S3, false},
		{"bucket without a secret key", keyless, recordingstore.S3, false},
	} {
		if where, err := row.storage.Where(); where != row.where {
			t.Errorf("%s: where = %v, want %v", row.name, where, row.where)
		} else if (err == nil) != row.good {
			t.Errorf("%s: Where error = %v, want success = %v", row.name, err, row.good)
		}
	}
	if _, err := recordingstore.NewLinks(recordingstore.Storage{LinkKeys: []string{"short"}}); err == nil {
		t.Error("a bad key: NewLinks = nil, want an error")
	} else if strings.Contains(err.Error(), "short") {
		t.Errorf(`a bad key: err = %q, want it without "short"`, err.Error())
	}
	if host, secure := recordingstore.Endpoint("http://127.0.0.1:9000"); host != "127.0.0.1:9000" {
		t.Errorf(`Endpoint: host = %q, want "127.0.0.1:9000"`, host)
	} else if secure {
		t.Error("Endpoint: secure = true, want false")
	}
}
