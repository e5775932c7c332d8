package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/proto/openapi"
)

// description contains the fields of the API description that the pages of docs/reference repeat.
type description struct {
	Webhooks map[string]struct {
		Post struct {
			RequestBody struct {
				Content map[string]struct {
					Example map[string]any `json:"example"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"post"`
	} `json:"webhooks"`
}

func readDescription(t *testing.T) description {
	t.Helper()
	var d description
	if err := json.Unmarshal(openapi.Description, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each body in docs/reference/events.md must equal the example of its event.
func TestEventsPage_ShowsTheExamples(t *testing.T) {
	t.Parallel()
	page := readPage(t, "../../docs/reference/events.md")
	shown := map[string]map[string]any{}
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(page, -1) {
		var body map[string]any
		if err := json.Unmarshal([]byte(block[1]), &body); err != nil {
			t.Fatalf("body %.60q: %v", block[1], err)
		}
		name, _ := body["type"].(string)
		shown[name] = body
	}
	want := map[string]map[string]any{}
	for name, event := range readDescription(t).Webhooks {
		want[name] = event.Post.RequestBody.Content["application/json"].Example
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("bodies differ from the API description (-want +shown):\n%s", diff)
	}
}

// docs/reference/errors.md must contain each error code of the API description.
func TestErrorsPage_ListsEveryCode(t *testing.T) {
	t.Parallel()
	page := readPage(t, "../../docs/reference/errors.md")
	codes := regexp.MustCompile(`"error":\{"code":"([a-z_]+)"`).FindAllStringSubmatch(sortedJSON(t), -1)
	if len(codes) < 20 {
		t.Fatalf("error codes in the API description = %d, want at least 20", len(codes))
	}
	for _, code := range codes {
		if !strings.Contains(page, "`"+code[1]+"`") {
			t.Errorf("docs/reference/errors.md does not list %s", code[1])
		}
	}
}

func sortedJSON(t *testing.T) string {
	t.Helper()
	var document any
	if err := json.Unmarshal(openapi.Description, &document); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
