package sdp

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	pion "github.com/pion/sdp/v3"
)

// suite is the SRTP crypto suite that every trunk with SRTP supports (RFC 4568 section 6.2.1).
const suite = "AES_CM_128_HMAC_SHA1_80"

// offeredKey is a usable crypto attribute.
type offeredKey struct {
	tag int
	key Key
}

// keys returns the crypto attributes with the supported suite, in order. Attributes with an MKI, or
// with a session parameter that changes the packets, are ignored (RFC 4568 sections 6.1 and 6.3).
// The lifetime of a key is ignored, because it is longer than any call.
func keys(attributes []pion.Attribute) (all []offeredKey) {
	for _, a := range attributes {
		fields := strings.Fields(a.Value)
		if a.Key != "crypto" || len(fields) < 3 || fields[1] != suite {
			continue
		}
		tag, err := strconv.ParseUint(fields[0], 10, 30)
		inline, isInline := strings.CutPrefix(fields[2], "inline:")
		if err != nil || !isInline || !harmless(fields[3:]) {
			continue
		}
		parts := strings.Split(inline, "|")
		if len(parts) > 2 || len(parts) == 2 && strings.Contains(parts[1], ":") {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(parts[0])
		if err != nil || len(raw) != len(Key{}) {
			continue
		}
		all = append(all, offeredKey{tag: int(tag), key: Key(raw)})
	}
	return all
}

// harmless reports whether the parameters do not change the packets. Only a hint for the replay
// window is harmless.
func harmless(parameters []string) bool {
	for _, p := range parameters {
		if !strings.HasPrefix(p, "WSH=") {
			return false
		}
	}
	return true
}

func cryptoLine(tag int, key Key) pion.Attribute {
	return pion.NewAttribute("crypto", fmt.Sprintf("%d %s inline:%s", tag, suite, key.inline()))
}
