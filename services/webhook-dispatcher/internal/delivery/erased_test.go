package delivery_test

import (
	"testing"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

func TestStrip_TakesOnlyWhatAnErasureTakes(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"type":"call.completed","sequence":3,"data":{"to":"+1","summary":{"customer_name":"Xy"},"transcript":{"turns":[1]},"recording_url":"x","new":1}}`: `{"data":{"new":1,"summary":null,"to":"+1"},"sequence":3,"type":"call.completed"}`,
		`{"type":"call.ringing","data":{"summary":null}}`: `{"data":{"summary":null},"type":"call.ringing"}`,
		`{"data":{}}`: `{"data":{}}`, `{"data":null}`: ``, `{"type":"x"}`: ``, `[1]`: ``, ``: ``,
	} {
		if got := string(delivery.Strip([]byte(body))); got != want {
			t.Errorf("Strip(%s) = %s, want %s", body, got, want)
		}
	}
}
