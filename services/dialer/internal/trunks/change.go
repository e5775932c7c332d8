package trunks

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/phone"
)

const (
	defaultSessionSeconds = 1800 // recommended by RFC 4028 section 4
	defaultChannels       = 10

	defaultMediaTimeoutSeconds = 15
	minMediaTimeout            = 5 // far ends send RTCP every 5 s (RFC 3550 section 6.2)
	maxMediaTimeout            = 3600

	defaultCallsPerSecond = 1
	defaultPriority       = 100

	maxName           = 200
	maxText           = 255
	maxCertificates   = 64 << 10
	maxChannels       = 100_000
	maxCallsPerSecond = 10_000
	maxPriority       = 1_000_000
	minSession        = 90 // minimum of RFC 4028 section 5
	maxSession        = 86_400
	maxList           = 100
)

// Change applies the fields of an operator's request body to the trunk and increases its version. A
// field that is null resets a setting to its default. The error names the invalid field. After an
// error, the trunk must not be used, because some of its fields have already changed.
func (t *Trunk) Change(body map[string]json.RawMessage) error {
	fresh := New(t.TrunkID)
	settings := t.settings(&fresh)
	for field, raw := range body {
		set, known := settings[field]
		if !known {
			continue
		}
		if string(raw) == "null" {
			raw = nil
		}
		if err := set(field, raw); err != nil {
			return err
		}
	}
	if err := t.validate(); err != nil {
		return err
	}
	t.Version++
	return nil
}

// setter sets a field of a trunk from JSON. If raw is nil, it sets the default. The error names the
// field.
type setter func(field string, raw json.RawMessage) error

func (t *Trunk) settings(fresh *Trunk) map[string]setter {
	return map[string]setter{
		"name":             setText(&t.Name, fresh.Name, maxName),
		"status":           setOneOf(&t.Status, fresh.Status, Active, Disabled),
		"host":             setText(&t.Host, fresh.Host, maxText),
		"port":             setNumber(&t.Port, fresh.Port, 1, 65535),
		"transport":        setOneOf(&t.Transport, fresh.Transport, UDP, TCP, TLS),
		"outbound_proxy":   setText(&t.OutboundProxy, "", maxText),
		"ca_certificates":  setText(&t.CACertificates, "", maxCertificates),
		"username":         setText(&t.Username, "", maxText),
		"password":         t.setPassword,
		"register":         setBool(&t.Register),
		"caller_ids":       setList(&t.CallerIDs, fresh.CallerIDs),
		"caller_id_header": setOneOf(&t.CallerIDHeader, fresh.CallerIDHeader, InFrom, InAsserted),
		"number_format":    setOneOf(&t.NumberFormat, fresh.NumberFormat, Plus, Digits, Prefix),
		"number_prefix":    setText(&t.NumberPrefix, "", 20),
		"codecs":           setList(&t.Codecs, fresh.Codecs),
		"srtp":             setOneOf(&t.SRTP, fresh.SRTP, SRTPOff, SRTPOptional, SRTPRequired),
		"session_seconds":  setNumber(&t.SessionSeconds, fresh.SessionSeconds, 0, maxSession),
		"media_timeout_seconds": setNumber(
			&t.MediaTimeoutSeconds, fresh.MediaTimeoutSeconds, 0, maxMediaTimeout,
		),
		"channels":         setNumber(&t.Channels, fresh.Channels, 1, maxChannels),
		"calls_per_second": setNumber(&t.CallsPerSecond, fresh.CallsPerSecond, 1, maxCallsPerSecond),
		"priority":         setNumber(&t.Priority, fresh.Priority, 0, maxPriority),
		"inbound_sources":  setList(&t.InboundSources, fresh.InboundSources),
		"trace":            setBool(&t.Trace),
	}
}

func setText(into *string, fallback string, longest int) setter {
	return func(field string, raw json.RawMessage) error {
		value := fallback
		if raw != nil && json.Unmarshal(raw, &value) != nil {
			return apierr.Validation(field, "must be a string.")
		}
		if utf8.RuneCountInString(value) > longest {
			return apierr.Validation(field, "must have at most %d characters.", longest)
		}
		*into = value
		return nil
	}
}

// setPassword sets or removes the password. It also deletes the old encrypted password.
func (t *Trunk) setPassword(field string, raw json.RawMessage) error {
	t.Sealed = nil
	return setText(&t.Password, "", maxText)(field, raw)
}

func setOneOf[T ~string](into *T, fallback T, known ...T) setter {
	return func(field string, raw json.RawMessage) error {
		value := fallback
		if raw != nil && (json.Unmarshal(raw, &value) != nil || !slices.Contains(known, value)) {
			names := make([]string, len(known))
			for i, one := range known {
				names[i] = string(one)
			}
			return apierr.Validation(field, "must be one of %s.", strings.Join(names, ", "))
		}
		*into = value
		return nil
	}
}

func setNumber[T ~int32 | ~uint16](into *T, fallback T, least, most int64) setter {
	return func(field string, raw json.RawMessage) error {
		if raw == nil {
			*into = fallback
			return nil
		}
		var value int64
		if json.Unmarshal(raw, &value) != nil || value < least || value > most {
			return apierr.Validation(field, "must be a whole number from %d to %d.", least, most)
		}
		*into = T(value)
		return nil
	}
}

func setBool(into *bool) setter {
	return func(field string, raw json.RawMessage) error {
		value := false
		if raw != nil && json.Unmarshal(raw, &value) != nil {
			return apierr.Validation(field, "must be true or false.")
		}
		*into = value
		return nil
	}
}

func setList(into *[]string, fallback []string) setter {
	return func(field string, raw json.RawMessage) error {
		if raw == nil {
			*into = fallback
			return nil
		}
		values := []string{}
		if json.Unmarshal(raw, &values) != nil || len(values) > maxList {
			return apierr.Validation(field, "must be a list of at most %d strings.", maxList)
		}
		*into = values
		return nil
	}
}

// tokenPattern matches texts that need no escapes in the user part of a SIP URI (RFC 3261 section
// 25.1).
var tokenPattern = regexp.MustCompile(`^[A-Za-z0-9_.!~*'()&=+$,;?/%@-]*$`)

// validate checks the settings and their combinations.
func (t *Trunk) validate() error { //nolint:cyclop // one check per setting
	host, port := splitAddress(t.OutboundProxy, t.Transport)
	switch {
	case strings.TrimSpace(t.Name) == "" || strings.ContainsFunc(t.Name, isControl):
		return apierr.Validation("name", "is required: what you call the trunk, in 1 to %d characters.", maxName)
	case !isHost(t.Host):
		return apierr.Validation("host", "is required: the trunk's host name or address, without scheme and port.")
	case t.OutboundProxy != "" && (!isHost(host) || port == 0):
		return apierr.Validation("outbound_proxy", "must be host or host:port.")
	case !isCertificates(t.CACertificates):
		return apierr.Validation("ca_certificates", "must be certificates in PEM form, and nothing else: no key.")
	case !tokenPattern.MatchString(t.Username):
		return apierr.Validation("username", "has a character that no SIP user name has.")
	case strings.ContainsFunc(t.Password, isControl):
		return apierr.Validation("password", "must not hold control characters.")
	case t.Username == "" && (t.Password != "" || t.Sealed != nil || t.Register):
		return apierr.Validation("username", "is required with a password, or to register.")
	case t.NumberFormat == Prefix && t.NumberPrefix == "":
		return apierr.Validation("number_prefix", "is required with number_format prefix, such as 00.")
	case t.NumberFormat != Prefix && t.NumberPrefix != "":
		return apierr.Validation("number_prefix", "goes with number_format prefix only.")
	case strings.Trim(t.NumberPrefix, "0123456789*") != "":
		return apierr.Validation("number_prefix", "may hold digits and * only.")
	case t.SessionSeconds != 0 && t.SessionSeconds < minSession:
		return apierr.Validation("session_seconds", "must be 0, for none, or %d to %d.", minSession, maxSession)
	case t.MediaTimeoutSeconds != 0 && t.MediaTimeoutSeconds < minMediaTimeout:
		return apierr.Validation(
			"media_timeout_seconds", "must be 0, for none, or %d to %d.", minMediaTimeout, maxMediaTimeout)
	case t.SRTP == SRTPRequired && t.Transport != TLS:
		return apierr.Validation("srtp", "required needs transport tls: over %s the key would travel readable.", t.Transport)
	}
	return t.validateLists()
}

func (t *Trunk) validateLists() error {
	if len(t.Codecs) == 0 || len(t.Codecs) > 2 {
		return apierr.Validation("codecs", "must name pcmu, pcma or both, the one you prefer first.")
	}
	for i, codec := range t.Codecs {
		if codec != PCMU && codec != PCMA || slices.Contains(t.Codecs[:i], codec) {
			return apierr.Validation("codecs", "must name pcmu, pcma or both, the one you prefer first.")
		}
	}
	for _, id := range t.CallerIDs {
		if _, ok := phone.Parse(id); !ok {
			return apierr.Validation("caller_ids", "must be E.164 numbers such as +14155550100.")
		}
	}
	for _, source := range t.InboundSources {
		if network, ok := parseNetwork(source); !ok || network.Bits() == 0 {
			return apierr.Validation("inbound_sources", "must be addresses or networks such as 203.0.113.7 or 203.0.113.0/24.")
		}
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// isCertificates reports whether a text contains only certificates. Other content, such as a
// private key, would be visible to everyone who reads the trunk.
func isCertificates(text string) bool {
	rest := []byte(text)
	for len(bytes.TrimSpace(rest)) > 0 {
		var block *pem.Block
		before := rest
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" || !bytes.HasPrefix(bytes.TrimSpace(before), []byte("-----BEGIN")) {
			return false
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return false
		}
	}
	return true
}

var hostPattern = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.?$`)

// isHost reports whether text is a host name or an address. An IPv6 address may be in brackets.
func isHost(text string) bool {
	if addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return addr.Zone() == ""
	}
	return len(text) <= 253 && hostPattern.MatchString(text)
}

// splitAddress splits host or host:port. If the port is invalid, it returns port 0.
func splitAddress(text string, transport Transport) (host string, port uint16) {
	if whole, err := netip.ParseAddrPort(text); err == nil {
		return whole.Addr().String(), whole.Port()
	}
	host, digits, found := strings.Cut(text, ":")
	if !found || strings.Contains(digits, ":") { // a name without a port, or an IPv6 address
		return strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), Trunk{Transport: transport}.SIPPort()
	}
	value, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return host, 0
	}
	return host, uint16(value)
}
