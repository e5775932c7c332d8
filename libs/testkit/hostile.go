package testkit

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Values returns JSON values that most fields reject, and values at the limits of what a field
// accepts.
func Values() []string {
	return []string{
		`null`, `true`, `0`, `-0`, `-1`, `0.1e-400`, `1e999999`, `9223372036854775808`, `[]`, `{}`, `[null]`, `[[]]`, `{"a":null}`,
		`""`, `" "`, `"a\u0000b"`, `"\ud800"`, "\"\xff\"", `"\ud83d\ude00"`, `"` + strings.Repeat("é", 600) + `"`, `"` + strings.Repeat("x", 3000) + `"`,
		`"00000000-0000-0000-0000-000000000000"`, `"urn:uuid:0190c2a0-7b2c-7c3e-8f00-aabbccddeeff"`, `"+١٤١٥٥٥٥٠١٢٣"`, `"+14155550123\n"`,
		`"0000-01-01T00:00:00Z"`, `"9999-12-31T23:59:59-23:59"`, `"10000-01-01T00:00:00Z"`, `"2026-06-30T23:59:60Z"`,
		`"2026-06-04T09:00:00+99:99"`, `"2026-06-04T09:00:00"`, `"24:01"`, `"1e5"`, `"-0.0000000"`,
		`{"a":1e400000,"b":{"c":{"d":{"e":[]}}}}`, strings.Repeat(`{"a":`, 40) + `1` + strings.Repeat(`}`, 40),
	}
}

// Bodies returns invalid request bodies.
func Bodies() []string {
	return []string{
		"", " ", "null", "[]", `"x"`, "1", "{", "}", `{"a"`, `{"a":}`, `{"a":1,}`, `{"a":1}{}`, "\ufeff{}", "\xff", "\x00", `{"\u0000":1}`,
		`{"a":1,"a":2}`, strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 50_000), `{"a":"` + strings.Repeat("x", 200_000) + `"}`,
		"{" + strings.Repeat(`"a":1,`, 30_000) + `"a":1}`, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff",
	}
}

// Mutations returns variants of a valid body: with each field omitted, with each field set to every
// hostile value, with duplicate fields, and with a truncated body.
func Mutations(good string) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(good), &fields) != nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(fields))
	mutations := []string{good[:len(good)/2], good[:len(good)-1]}
	for _, name := range names {
		without := maps.Clone(fields)
		delete(without, name)
		rest, err := json.Marshal(without)
		if err != nil {
			continue
		}
		mutations = append(mutations, string(rest))
		joined := strings.TrimSuffix(string(rest), "}")
		if len(without) > 0 {
			joined += ","
		}
		for _, value := range Values() {
			mutations = append(mutations, joined+`"`+name+`":`+value+"}")
		}
		mutations = append(mutations, strings.TrimSuffix(good, "}")+`,"`+name+`":`+string(fields[name])+"}")
	}
	return mutations
}

// Segments returns path values that a router and a decoder could interpret differently.
func Segments() []string {
	return []string{
		"x", ".", "..", "%2e%2e", "%2F", "a%2Fb", "%00", "%ff", "%", "%zz", "%20", "+", "%2B", "+14155550123", "%2B14155550123", "%2b1415555012%33",
		"+1415555", "+0123456789", "+1415555012345678", "%D9%A1%D9%A2", "00000000-0000-0000-0000-000000000000",
		"%7b0190c2a0-7b2c-7c3e-8f00-aabbccddeeff%7d", "0190c2a07b2c7c3e8f00aabbccddeeff", "0190C2A0-7B2C-7C3E-8F00-AABBCCDDEEFF", "*", "{id}", ";a=b",
		strings.Repeat("9", 5000),
	}
}

// Parameters returns encoded values of query parameters.
func Parameters() []string {
	return []string{
		"", "0", "1", "100", "101", "-1", "+5", "%2B5", "1e2", "1.5", "99999999999999999999", "%00", "%ff", "%zz", "%", ";", "null", "true",
		"0190c2a0-7b2c-7c3e-8f00-aabbccddeeff", "00000000-0000-0000-0000-000000000000", "0190c2a07b2c7c3e8f00aabbccddeeff",
		"2026-06-04T09:00:00Z", "2026-06-04T09:00:00+02:00", "2026-06-04T09:00:00", "2026-06-04T9:00:00Z", "2026-06-04T09:00:00,5Z",
		"0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "10000-01-01T00:00:00Z", "2026-06-04T09:00:00%2B99:99", "2026-06-30T23:59:60Z",
		"+14155550123", "%2B14155550123", "100%25", "_", "%25", "%5C", "%27%3B--", strings.Repeat("x", 5000),
	}
}
