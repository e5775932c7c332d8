package ssrf

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxURL bounds a url in characters (contract.md §6).
const MaxURL = 2048

// CheckURL refuses every url that a customer must not give us to connect to (contract.md §5): only of the scheme (https, wss), no user info, no fragment, and no
// literal address that reachable refuses. What a name resolves to is judged on connect. What it returns has its scheme in
// small letters. Its error is the rest of a sentence that begins with the url's name.
func CheckURL(text, scheme string, reachable func(netip.Addr) bool) (string, error) {
	if utf8.RuneCountInString(text) > MaxURL {
		return "", errors.New("is longer than " + strconv.Itoa(MaxURL) + " characters")
	}
	parsed, err := url.Parse(text)
	if err != nil {
		return "", errors.New("cannot be read as a URL")
	}
	switch {
	case parsed.Scheme != scheme:
		return "", errors.New("must begin with " + scheme + "://")
	case parsed.Opaque != "" || parsed.Hostname() == "":
		return "", errors.New("names no host")
	case parsed.User != nil:
		return "", errors.New("must not carry a user name or password")
	case strings.Contains(text, "#"):
		return "", errors.New("must not carry a fragment")
	case strings.ContainsAny(text, " \"<>\\^`{|}"): // RFC 3986, 2: in no part of a URL; net/http would send another than was written
		return "", errors.New("holds a space or one of \"<>\\^`{|}; percent-encode it")
	}
	if err := checkPort(parsed); err != nil {
		return "", err
	}
	if err := checkHost(parsed.Hostname(), reachable); err != nil {
		return "", err
	}
	return parsed.Scheme + text[len(parsed.Scheme):], nil
}

func checkPort(parsed *url.URL) error {
	if parsed.Port() == "" {
		if strings.HasSuffix(parsed.Host, ":") {
			return errors.New("has a colon without a port")
		}
		return nil
	}
	if port, err := strconv.ParseUint(parsed.Port(), 10, 16); err != nil || port == 0 {
		return errors.New("has a port outside 1–65535")
	}
	return nil
}

func checkHost(host string, reachable func(netip.Addr) bool) error {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if addr, err := netip.ParseAddr(name); err == nil {
		if addr.Zone() != "" || !reachable(addr) {
			return errors.New("points at a private or reserved address; use a public one")
		}
		return nil
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		if !reachable(netip.AddrFrom4([4]byte{127, 0, 0, 1})) {
			return errors.New("points at this machine; use a public host")
		}
		return nil
	}
	if name == "" || len(name) > 253 || strings.ContainsAny(name, " \t\"'<>\\^`{|}%,;!$&()*+=~@[]:") || numeric(name) {
		return errors.New("has a host that is neither a name nor a full IP address")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return errors.New("has a host that is neither a name nor a full IP address")
		}
	}
	return nil
}

// numeric says that the last label is a number, as in 127.1, 0x7f.0.0.1 or 2130706433: some resolvers read such names as addresses.
func numeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
}
