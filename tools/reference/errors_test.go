package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/libs/apierr"
)

func TestWriteErrors_EqualsTheCommittedPage(t *testing.T) {
	t.Parallel()
	var page bytes.Buffer
	if err := writeErrors(&page); err != nil {
		t.Fatal(err)
	}
	if page.String() != readPage(t, "../../docs/reference/errors.md") {
		t.Error("docs/reference/errors.md differs from apierr.Catalogue: run make configuration and commit it")
	}
}

// A new error code must be in the catalogue, because clients decide by the code.
func TestCatalogue_ContainsEveryCodeInTheSource(t *testing.T) {
	t.Parallel()
	documented := map[string]bool{}
	for _, section := range apierr.Catalogue() {
		for _, entry := range section.Entries {
			for _, code := range entry.Codes {
				documented[code] = true
			}
		}
	}
	newError := regexp.MustCompile(`apierr\.(?:Unprocessable|Conflict|New)\((?:[\w.]+,)?\s*"([a-z_]+)"`)
	found := map[string]string{}
	for _, root := range []string{"../../libs", "../../services"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, match := range newError.FindAllStringSubmatch(string(source), -1) {
				found[match[1]] = path
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 20 {
		t.Fatalf("error codes in the source = %d, want at least 20", len(found))
	}
	for code, path := range found {
		if !documented[code] {
			t.Errorf("%s returns the error code %s, which apierr.Catalogue does not contain", path, code)
		}
	}
}

// The API description lists the codes of error responses. An entry without a status is the
// error_code of a call request.
func TestCatalogue_EqualsTheCodesOfTheAPIDescription(t *testing.T) {
	t.Parallel()
	var document struct {
		Components struct {
			Schemas struct {
				ErrorDetail struct {
					Properties struct {
						Code struct {
							Values []string `json:"x-extensible-enum"`
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(readPage(t, "../../proto/openapi/openapi.json")), &document); err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, section := range apierr.Catalogue() {
		for _, entry := range section.Entries {
			for _, code := range entry.Codes {
				if entry.Status != 0 {
					codes[code] = true
				}
			}
		}
	}
	described := slices.Sorted(slices.Values(document.Components.Schemas.ErrorDetail.Properties.Code.Values))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(codes)), described); diff != "" {
		t.Errorf("codes of ErrorDetail in openapi.yaml (-catalogue +schema):\n%s", diff)
	}
}
