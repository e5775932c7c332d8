package pages

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"ringfence.dev/services/console/internal/gateway"
)

func TestSubscription_ReplayFormStatesTheZoneAndUsesOneWord(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ language, action, hint string }{
		{language: "en", action: "Replay", hint: "Both times are in the time zone Pacific/Auckland."},
		{language: "de", action: "Erneut senden", hint: "Beide Zeiten gelten in der Zeitzone Pacific/Auckland."},
	} {
		t.Run(tt.language, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Owner)
			s.set("GET /v1/webhook-subscriptions/"+itemID, map[string]any{"id": itemID, "name": "CRM", "status": "active"})
			r := s.request("GET", home+"/webhooks/"+itemID, nil)
			r.Header.Set("Accept-Language", tt.language)
			r.AddCookie(&http.Cookie{Name: s.server.cookies.zone, Value: url.QueryEscape("Pacific/Auckland")})
			w := s.do(r)
			wantStatus(t, w, http.StatusOK)
			wantBody(t, w, tt.hint)
			wantBody(t, w, "</svg>"+tt.action+"</button>")
			wantBody(t, w, `data-kind="primary">`+tt.action+"</button>")
		})
	}
}

func TestReplayPeriod_IncludesToday(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.March, 1, 23, 59, 59, 0, time.UTC)
	since, until := replayPeriod(now)
	wantEqual(t, "since", since, "2026-02-28T00:00")
	wantEqual(t, "until", until, "2026-03-02T00:00")
}
