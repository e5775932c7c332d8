package deliveries_test

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

func defaultSchedule() deliveries.Schedule {
	return deliveries.Schedule{Delays: []time.Duration{60 * time.Second, 120 * time.Second, 240 * time.Second, 480 * time.Second}}
}

func TestNext_FollowsTheRetrySchedule(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		attempt    int
		jitter     float64
		retryAfter time.Duration
		want       time.Duration // 0 if no further attempt follows
	}{
		{name: "first failure waits the minimum", attempt: 1, want: 60 * time.Second},
		{name: "second failure waits twice the minimum", attempt: 2, want: 120 * time.Second},
		{name: "third failure waits four times the minimum", attempt: 3, want: 240 * time.Second},
		{name: "fourth failure waits the maximum", attempt: 4, want: 480 * time.Second},
		{name: "fifth failure exhausts the delivery", attempt: 5},
		{name: "jitter never goes below the minimum", attempt: 1, jitter: -1, want: 60 * time.Second},
		{name: "jitter lengthens the first wait", attempt: 1, jitter: 1, want: 66 * time.Second},
		{name: "jitter shortens a middle wait", attempt: 2, jitter: -1, want: 108 * time.Second},
		{name: "jitter never goes above the maximum", attempt: 4, jitter: 1, want: 480 * time.Second},
		{name: "jitter shortens the last wait", attempt: 4, jitter: -1, want: 432 * time.Second},
		{name: "Retry-After lengthens the wait", attempt: 1, retryAfter: 100 * time.Second, want: 100 * time.Second},
		{name: "Retry-After never shortens the wait", attempt: 3, retryAfter: time.Second, want: 240 * time.Second},
		{name: "Retry-After above the maximum waits the maximum", attempt: 1, retryAfter: time.Hour, want: 480 * time.Second},
		{name: "Retry-After does not give a sixth attempt", attempt: 5, retryAfter: time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, again := defaultSchedule().Next(tt.attempt, tt.jitter, tt.retryAfter)
			if got != tt.want {
				t.Errorf("Next(%d, %v, %s) = %s, want %s", tt.attempt, tt.jitter, tt.retryAfter, got, tt.want)
			}
			if wantAgain := tt.want != 0; again != wantAgain {
				t.Errorf("Next(%d, %v, %s): again = %v, want %v", tt.attempt, tt.jitter, tt.retryAfter, again, wantAgain)
			}
		})
	}
	if got := defaultSchedule().Attempts(); got != 5 {
		t.Errorf("Attempts = %d, want 5", got)
	}
}

func TestNext_DelayIsWithinTheLimitsForAnyRetryAfter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(1, 4).Draw(t, "attempt")
		jitter := rapid.Float64Range(-1, 1).Draw(t, "jitter")
		retryAfter := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "retryAfter"))
		wait, again := defaultSchedule().Next(attempt, jitter, retryAfter)
		if !again {
			t.Fatalf("Next(%d, %v, %s): again = false, want true", attempt, jitter, retryAfter)
		}
		if least := max(60*time.Second, min(retryAfter, 480*time.Second)); wait < least {
			t.Fatalf("Next(%d, %v, %s) = %s, want at least %s", attempt, jitter, retryAfter, wait, least)
		}
		if wait > 480*time.Second {
			t.Fatalf("Next(%d, %v, %s) = %s, want at most 480 s", attempt, jitter, retryAfter, wait)
		}
	})
}

func TestRetryAfter_ReadsSecondsAndDates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 4, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		code   int
		header string
		want   time.Duration
	}{
		{name: "seconds of a 429", code: 429, header: "120", want: 120 * time.Second},
		{name: "seconds of a 503", code: 503, header: " 5 ", want: 5 * time.Second},
		{name: "a date", code: 503, header: "Thu, 04 Jun 2026 12:01:30 GMT", want: 90 * time.Second},
		{name: "a date in the past", code: 503, header: "Thu, 04 Jun 2026 11:00:00 GMT"},
		{name: "a negative number", code: 429, header: "-3"},
		{name: "a number above the integer range", code: 429, header: "99999999999999999999", want: math.MaxInt32 * time.Second},
		{name: "a number below the integer range", code: 429, header: "-99999999999999999999"},
		{name: "a header that is neither a number nor a date", code: 429, header: "soon"},
		{name: "no header", code: 429},
		{name: "other status codes are ignored", code: 500, header: "120"},
		{name: "success is ignored", code: 200, header: "120"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := deliveries.RetryAfter(tt.code, tt.header, now); got != tt.want {
				t.Errorf("RetryAfter(%d, %q) = %s, want %s", tt.code, tt.header, got, tt.want)
			}
		})
	}
}

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
