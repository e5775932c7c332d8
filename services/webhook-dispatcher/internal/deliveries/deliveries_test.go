package deliveries_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

// The signature was computed with printf '1780574400.%s' "$body" | openssl dgst -sha256 -hmac
// "$secret".
func TestHeader_EqualsTheDocumentedHeaders(t *testing.T) {
	t.Parallel()
	work := deliveries.Work{
		DeliveryID: uuid.MustParse("0196f3a0-0000-5000-8000-000000000001"), EventID: uuid.MustParse("0196f3a0-0000-5000-8000-000000000002"),
		Attempt: 3, Secret: "whsec_c2VjcmV0LWZvci10ZXN0cw", Body: []byte(`{"id":"0196f3a0","type":"call.completed","data":{"to":"+14155550142"}}`),
	}
	at := time.Unix(1780574400, 999_999_999)
	want := http.Header{
		"Content-Type":               {"application/json"},
		"User-Agent":                 {"Ringfence-Webhooks/1.0"},
		"X-Service-Signature":        {"t=1780574400,v1=ca05aab45544a0b411c1c9387df519aa998a92ab38165005b8140a6ecb87692e"},
		"X-Service-Event-Id":         {"0196f3a0-0000-5000-8000-000000000002"},
		"X-Service-Delivery-Id":      {"0196f3a0-0000-5000-8000-000000000001"},
		"X-Service-Delivery-Attempt": {"3"},
	}
	if diff := cmp.Diff(want, deliveries.Header(work, at)); diff != "" {
		t.Errorf("Header differs (-want +got):\n%s", diff)
	}
}

// These test vectors were not computed by the code under test. The example receivers are tested
// with the same vectors.
func TestSign_MatchesTheVectorsOfTheExampleReceivers(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "examples", "receivers", "vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name, Secret, Header, Body string
		Timestamp                  int64
		Valid                      bool
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	signed := 0
	for _, v := range vectors {
		if !v.Valid {
			continue
		}
		signed++
		if got := deliveries.Sign(v.Secret, time.Unix(v.Timestamp, 0), []byte(v.Body)); got != v.Header {
			t.Errorf("%s: Sign = %s, want %s", v.Name, got, v.Header)
		}
	}
	if signed == 0 {
		t.Error("no vector is a valid signature")
	}
}

func TestNewTest_BodyEqualsTheDocumentedExample(t *testing.T) {
	t.Parallel()
	ev, err := deliveries.NewTest(uuid.MustParse("019aa2e4-9c00-7000-8000-000000000001"), uuid.MustParse("019aa2e4-9c00-7000-8000-000000000002"),
		uuid.MustParse("019aa2e4-9c00-7000-8000-000000000003"), time.Date(2026, 6, 4, 14, 0, 0, 123_456_789, time.FixedZone("", 7200)))
	if err != nil {
		t.Fatalf("NewTest: %v", err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "webhook_test.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(ev.Body); got != strings.TrimSpace(string(want)) {
		t.Errorf("test event =\n%s\nwant\n%s", got, want)
	}
}

func TestID_ContainsTheTimeOfTheEvent(t *testing.T) {
	t.Parallel()
	sub, event := uuid.MustParse("019aa2e4-9c00-7000-8000-000000000003"), uuid.MustParse("019aa2e4-9c00-7000-8000-000000000001")
	at := time.UnixMicro(1780574400123456).UTC()
	// Another program computed this value from the time of the event and the SHA-1 of both ids.
	const want = "019e9281-2e7b-71c8-9b4e-a53f78f2c6db"
	id := deliveries.ID(sub, event, at)
	if got := id.String(); got != want {
		t.Errorf("ID = %s, want %s", got, want)
	}
	if got := deliveries.ID(uuid.New(), event, at).String(); got == want {
		t.Errorf("ID of another subscription = %s, want another id", got)
	}
	got, ok := deliveries.CreatedAt(id)
	if !ok {
		t.Error("CreatedAt: ok = false, want true")
	}
	if !got.Equal(at) {
		t.Errorf("CreatedAt = %s, want %s", got, at)
	}
	if _, ok := deliveries.CreatedAt(uuid.NewSHA1(sub, event[:])); ok {
		t.Error("CreatedAt of a UUIDv5: ok = true, want false")
	}
	later := deliveries.ID(sub, event, at.Add(time.Microsecond))
	if bytes.Compare(later[:], id[:]) <= 0 {
		t.Errorf("ID of an event one microsecond later = %s, want it above %s", later, id)
	}
}
