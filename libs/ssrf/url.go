package ssrf

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxURL is the maximum length of a URL in characters.
const MaxURL = 2048

// CheckURL checks a URL that a customer configured. The URL must have the given scheme (https, wss)
// and a host, and no user info and no fragment. If the host is an IP address, isReachable must
// return true for it. A host name is checked when a connection is opened.
//
// CheckURL returns the URL with its scheme in lower case. Its error is a sentence without the name
// of the field.
func CheckURL(text, scheme string, isReachable func(netip.Addr) bool) (string, error) {
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
	// RFC 3986 section 2 forbids these characters, and net/http would change them.
	case strings.ContainsAny(text, " \"<>\\^`{|}"):
		return "", errors.New("holds a space or one of \"<>\\^`{|}; percent-encode it")
	}
	if err := checkPort(parsed); err != nil {
		return "", err
	}
	if err := checkHost(parsed.Hostname(), isReachable); err != nil {
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

func checkHost(host string, isReachable func(netip.Addr) bool) error {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if addr, err := netip.ParseAddr(name); err == nil {
		if addr.Zone() != "" || !isReachable(addr) {
			return errors.New("points at a private or reserved address; use a public one")
		}
		return nil
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		if !isReachable(netip.AddrFrom4([4]byte{127, 0, 0, 1})) {
			return errors.New("points at this machine; use a public host")
		}
		return nil
	}
	if name == "" || len(name) > 253 || strings.ContainsAny(name, " \t\"'<>\\^`{|}%,;!$&()*+=~@[]:") ||
		endsInNumber(name) {
		return errors.New("has a host that is neither a name nor a full IP address")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return errors.New("has a host that is neither a name nor a full IP address")
		}
	}
	return nil
}

// endsInNumber reports whether the last label of the name is a number, as in 127.1, 0x7f.0.0.1 or
// 2130706433. Some resolvers read such names as addresses.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
}
