package sdp

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	pion "github.com/pion/sdp/v3"
)

// srtpSuite is the SRTP crypto suite that every trunk with SRTP supports (RFC 4568 section 6.2.1).
const srtpSuite = "AES_CM_128_HMAC_SHA1_80"

// offeredKey is a crypto attribute of the far end that can be used.
type offeredKey struct {
	tag int
	key Key
}

// supportedKeys returns the crypto attributes with the supported suite, in order. An attribute with
// a master key identifier (MKI) or with a parameter that changes the packets is ignored (RFC 4568
// sections 6.1 and 6.3).
func supportedKeys(attributes []pion.Attribute) (all []offeredKey) {
	for _, a := range attributes {
		fields := strings.Fields(a.Value)
		if a.Key != "crypto" || len(fields) < 3 || fields[1] != srtpSuite {
			continue
		}
		tag, err := strconv.ParseUint(fields[0], 10, 30)
		inline, isInline := strings.CutPrefix(fields[2], "inline:")
		if err != nil || !isInline || !isHarmless(fields[3:]) {
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

// isHarmless reports whether none of the session parameters changes the packets. Only WSH, a hint
// for the replay window, changes nothing.
func isHarmless(parameters []string) bool {
	for _, p := range parameters {
		if !strings.HasPrefix(p, "WSH=") {
			return false
		}
	}
	return true
}

func cryptoLine(tag int, key Key) pion.Attribute {
	return pion.NewAttribute("crypto", fmt.Sprintf("%d %s inline:%s", tag, srtpSuite, key.inline()))
}
