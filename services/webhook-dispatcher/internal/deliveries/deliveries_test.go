package deliveries_test

import (
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

func TestNext(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		attempt int
		spread  float64
		asked   time.Duration
		want    time.Duration // 0: no further attempt
	}{
		{"first failure waits the spec minimum", 1, 0, 0, 60 * time.Second},
		{"second failure waits twice that", 2, 0, 0, 120 * time.Second},
		{"third failure waits twice that", 3, 0, 0, 240 * time.Second},
		{"fourth failure waits the spec maximum", 4, 0, 0, 480 * time.Second},
		{"fifth failure exhausts the delivery", 5, 0, 0, 0},
		{"jitter never goes below the minimum", 1, -1, 0, 60 * time.Second},
		{"jitter lengthens the first wait", 1, 1, 0, 66 * time.Second},
		{"jitter shortens a middle wait", 2, -1, 0, 108 * time.Second},
		{"jitter never goes above the maximum", 4, 1, 0, 480 * time.Second},
		{"jitter shortens the last wait", 4, -1, 0, 432 * time.Second},
		{"Retry-After lengthens the wait", 1, 0, 100 * time.Second, 100 * time.Second},
		{"Retry-After never shortens it", 3, 0, time.Second, 240 * time.Second},
		{"Retry-After ends at the maximum", 1, 0, time.Hour, 480 * time.Second},
		{"Retry-After does not give a sixth attempt", 5, 0, time.Second, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, again := defaultSchedule().Next(tt.attempt, tt.spread, tt.asked)
			if got != tt.want {
				t.Errorf("Next(%d, %v, %s) = %s, want %s", tt.attempt, tt.spread, tt.asked, got, tt.want)
			}
			if wantAgain := tt.want != 0; again != wantAgain {
				t.Errorf("Next(%d, %v, %s): again = %v, want %v", tt.attempt, tt.spread, tt.asked, again, wantAgain)
			}
		})
	}
	if got := defaultSchedule().Attempts(); got != 5 {
		t.Errorf("Attempts = %d, want 5", got)
	}
}

func TestNext_StaysWithinTheLimitsForAnyRetryAfter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(1, 4).Draw(t, "attempt")
		spread := rapid.Float64Range(-1, 1).Draw(t, "spread")
		asked := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "asked"))
		wait, again := defaultSchedule().Next(attempt, spread, asked)
		if !again {
			t.Fatalf("Next(%d, %v, %s): again = false, want true", attempt, spread, asked)
		}
		if least := max(60*time.Second, min(asked, 480*time.Second)); wait < least {
			t.Fatalf("Next(%d, %v, %s) = %s, want at least %s", attempt, spread, asked, wait, least)
		}
		if wait > 480*time.Second {
			t.Fatalf("Next(%d, %v, %s) = %s, want at most 480 s", attempt, spread, asked, wait)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 4, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		code   int
		header string
		want   time.Duration
	}{
		{"seconds of a 429", 429, "120", 120 * time.Second},
		{"seconds of a 503", 503, " 5 ", 5 * time.Second},
		{"a date", 503, "Thu, 04 Jun 2026 12:01:30 GMT", 90 * time.Second},
		{"a date gone by", 503, "Thu, 04 Jun 2026 11:00:00 GMT", 0},
		{"a negative number", 429, "-3", 0},
		{"more seconds than a number holds", 429, "99999999999999999999", math.MaxInt32 * time.Second},
		{"less than a number holds", 429, "-99999999999999999999", 0},
		{"nonsense", 429, "soon", 0},
		{"nothing", 429, "", 0},
		{"other codes are not asked", 500, "120", 0},
		{"nor is success", 200, "120", 0},
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

// The vector was computed apart from this code: printf '1780574400.%s' "$body" | openssl dgst
// -sha256 -hmac "$secret".
func TestHeader_MatchesTheDocumentedHeaders(t *testing.T) {
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

// The vectors were computed apart from this code, and the receivers that customers copy are held
// against the same.
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

func TestNewTest_MatchesTheDocumentedEnvelope(t *testing.T) {
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

func TestID_DependsOnEventAndSubscriptionOnly(t *testing.T) {
	t.Parallel()
	sub, event := uuid.MustParse("019aa2e4-9c00-7000-8000-000000000003"), uuid.MustParse("019aa2e4-9c00-7000-8000-000000000001")
	// The value was computed apart from this code: SHA-1 over both ids, version 5.
	const want = "d64703ec-23aa-5d21-9b4e-a53f78f2c6db"
	if got := deliveries.ID(sub, event).String(); got != want {
		t.Errorf("ID = %s, want %s", got, want)
	}
	if got := deliveries.ID(uuid.New(), event).String(); got == want {
		t.Errorf("ID of another subscription = %s, want another id", got)
	}
}
