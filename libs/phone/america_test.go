package phone

import (
	"fmt"
	"testing"
)

func TestForbidden_MatchesThePhoneMetadataInNorthAmerica(t *testing.T) {
	t.Parallel()
	for area := range 1000 {
		for _, rest := range []string{"2000000", "5550100", "9765432", "0111111", "1234567", "9", "91155", "77777777"} {
			n := Number(fmt.Sprintf("+1%03d%s", area, rest))
			if got, want := n.Forbidden(), n.forbiddenKind(); got != want {
				t.Errorf("%s is %q, the metadata says %q", n, got, want)
			}
		}
	}
}
