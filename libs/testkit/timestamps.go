package testkit

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"
)

var (
	dateTime = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d`)
	shown    = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
)

// CheckTimestamps reports every timestamp of a JSON document that is not in UTC with exactly three
// decimals. It skips members whose names are in except. It returns the number of timestamps, or 0
// for a document that is not JSON.
func CheckTimestamps(t testing.TB, document []byte, except ...string) int {
	t.Helper()
	var value any
	if err := json.Unmarshal(document, &value); err != nil {
		return 0
	}
	found := walkTimestamps("", value, except)
	for _, at := range found {
		if !shown.MatchString(at.text) {
			t.Errorf("timestamp %s = %s, want UTC with three decimals, such as 2026-06-04T09:00:00.000Z", at.path, at.text)
		}
	}
	return len(found)
}

type timestamp struct{ path, text string }

func walkTimestamps(path string, value any, except []string) (found []timestamp) {
	switch v := value.(type) {
	case string:
		if dateTime.MatchString(v) {
			found = append(found, timestamp{path, v})
		}
	case []any:
		for i, item := range v {
			found = append(found, walkTimestamps(fmt.Sprintf("%s[%d]", path, i), item, except)...)
		}
	case map[string]any:
		for name, member := range v {
			if !slices.Contains(except, name) {
				found = append(found, walkTimestamps(path+"."+name, member, except)...)
			}
		}
	}
	return found
}
