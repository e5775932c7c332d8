// Package compose_test checks the Compose file and the charts without a container engine: the
// binaries read every variable that is set, and no required variable is missing.
package compose_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var services = []string{"gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher"}

// withConsole lists the services and the console, which has no database, no broker and no keys.
var withConsole = append(slices.Clone(services), "console")

var (
	tag      = regexp.MustCompile("env:\"([A-Z][A-Z0-9_]*)(,required)?[^\"]*\"")
	imported = regexp.MustCompile(`"ringfence\.dev/libs/([a-z]+)"`)
	envLine  = regexp.MustCompile(`^([A-Z][A-Z0-9_]*)=(.*)$`)
)

const root = "../.."

// readVariables returns every variable that the Go code in dir and the imported libs read. The
// map's value is true if the variable is required.
func readVariables(t *testing.T, dir string) map[string]bool {
	t.Helper()
	found, libs := map[string]bool{}, map[string]bool{}
	scan := func(dir string) {
		text := goText(t, dir)
		for _, match := range tag.FindAllStringSubmatch(text, -1) {
			found[match[1]] = match[2] != ""
		}
		for _, match := range imported.FindAllStringSubmatch(text, -1) {
			libs[match[1]] = true
		}
	}
	scan(dir)
	for _, lib := range slices.Sorted(maps.Keys(libs)) {
		scan("libs/" + lib)
	}
	if len(found) == 0 {
		t.Fatalf("%s reads no variable at all", dir)
	}
	return found
}

func goText(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

func compare(t *testing.T, where string, set map[string]bool, reads map[string]bool) {
	t.Helper()
	for name := range set {
		if _, ok := reads[name]; !ok {
			t.Errorf("%s sets %s, which the binary does not read", where, name)
		}
	}
	for name, required := range reads {
		if required && !set[name] {
			t.Errorf("%s does not set %s, which the binary must have", where, name)
		}
	}
}

func TestComposeFile_SetsOnlyKnownAndAllRequiredVariables(t *testing.T) {
	t.Parallel()
	dirs := map[string]string{"simcarrier": "cmd/simcarrier"}
	for _, name := range withConsole {
		dirs[name] = "services/" + name
	}
	for name, dir := range dirs {
		set := map[string]bool{}
		file := "deploy/compose/" + name + ".env"
		for _, line := range lines(t, file) {
			if match := envLine.FindStringSubmatch(line); match != nil {
				set[match[1]] = true
			}
		}
		compare(t, file, set, readVariables(t, dir))
	}
}
