package sipcarrier

import (
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/trunks"
)

func TestSIPTrunk_TrunkWithoutAPortUsesSRVRecords(t *testing.T) {
	t.Parallel()
	for _, transport := range []trunks.Transport{trunks.UDP, trunks.TCP, trunks.TLS} {
		one := trunks.New(uuid.UUID{1})
		one.Transport = transport
		if got := sipTrunk(one).Port; got != 0 {
			t.Errorf("%s: port = %d, want 0", transport, got)
		}
		if one.Port = 5070; sipTrunk(one).Port != 5070 {
			t.Errorf("%s: port = %d, want 5070", transport, sipTrunk(one).Port)
		}
	}
}
