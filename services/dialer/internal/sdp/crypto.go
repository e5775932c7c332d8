package sdp

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	pion "github.com/pion/sdp/v3"
)

// srtpSuite is the only supported SRTP crypto suite. Every trunk with SRTP supports it (RFC 4568
// section 6.2.1).
const srtpSuite = "AES_CM_128_HMAC_SHA1_80"

// offeredKey is a usable crypto attribute of the far end.
type offeredKey struct {
	tag int
	key Key
}

// supportedKeys returns the usable crypto attributes, in the order of the SDP. It ignores
// attributes with another suite, with a master key identifier (MKI), or with a parameter that
// changes the packets (RFC 4568 sections 6.1 and 6.3).
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

// isHarmless reports whether no session parameter changes the packets. Only WSH, a hint about the
// replay window, is harmless.
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
