package page

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/testkit"
)

func FuzzParse(f *testing.F) {
	for _, value := range testkit.Parameters() {
		f.Add("limit=" + value)
		f.Add("starting_after=" + value)
	}
	f.Add("limit=1&limit=2")
	f.Add("limit=3&starting_after=0190c2a0-7b2c-7c3e-8f00-aabbccddeeff&other=%00")
	f.Fuzz(func(t *testing.T, raw string) {
		query, err := url.ParseQuery(raw)
		if err != nil {
			t.Skip("the gateway refuses it")
		}
		asked, err := Parse(query)
		var refused *apierr.Error
		switch {
		case err == nil && (asked.Limit < 1 || asked.Limit > 100):
			t.Errorf("%q: limit %d", raw, asked.Limit)
		case err == nil && query.Has("starting_after") != (asked.After != uuid.Nil):
			t.Errorf("%q: after %s", raw, asked.After)
		case err != nil && !errors.As(err, &refused):
			t.Errorf("%q: %v, want a refusal", raw, err)
		case err != nil && !strings.HasPrefix(refused.Message, "limit ") && !strings.HasPrefix(refused.Message, "starting_after "):
			t.Errorf("%q: message %q names no parameter", raw, refused.Message)
		}
	})
}
