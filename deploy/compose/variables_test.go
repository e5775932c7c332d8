package compose_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var (
	structTag = regexp.MustCompile("`(env:\"[A-Z][^`]*)`")
	// secretVariable matches the names of variables with secret values. It does not match
	// TRUSTED_KEYS, because those keys are public.
	secretVariable = regexp.MustCompile(
		`^(POSTGRES_(DIRECT_|MIGRATE_)?URL|[A-Z0-9_]*(KEY|KEYS|PASSWORD|TOKENS?|PEPPER|SECRET))$`)
	named = regexp.MustCompile(`(?m)^ *(?:- name: |- \{name: )?([A-Z][A-Z0-9_]{3,})(?::|,|$)`)
)

type values struct {
	Env         map[string]any
	HostAddress []string `yaml:"hostAddress"`
	Secret      struct{ Keys, Optional []string }
	Autoscaling struct {
		By []struct {
			Metric           string
			Labels           map[string]string
			Each, Partitions int
		}
	}
	Network struct {
		AskedBy  []string `yaml:"askedBy"`
		ProbedBy []string `yaml:"probedBy"`
		Asks     []string
		Probes   []string
		Internet struct {
			Except4, Except6 []string
			Ports            []portRange
		}
	}
	StartsWithin int `yaml:"startsWithin"`
	Grace        int `yaml:"terminationGracePeriodSeconds"`
	Resources    struct{ Limits struct{ Memory string } }
}

// portRange is one port of a NetworkPolicy, or the range of ports up to EndPort.
type portRange struct {
	Port     int
	EndPort  int `yaml:"endPort"`
	Protocol string
}

func valuesOf(t *testing.T, chart string) (v values) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(strings.Join(lines(t, "helm/"+chart+"/values.yaml"), "\n")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// libraryVariables lists the variables that the library chart itself sets.
var libraryVariables = []string{
	"ADMIN_ADDR",
	"CONSOLE_ADDR",
	"GOMEMLIMIT",
	"HTTP_ADDR",
	"KAFKA_INSTANCE_ID",
	"NODE_ADDRESS",
	"POSTGRES_MIGRATE_URL",
	"PRIVATE_ADDR",
}

func TestCharts_LibrarySetsOnlyListedVariables(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(root, "helm/ringfence-lib/templates/*.tpl"))
	if err != nil {
		t.Fatalf("no templates: Glob: %v", err)
	}
	if len(files) == 0 {
		t.Fatal("no templates: length of files = 0, want more")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			found[match[1]] = true
		}
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, libraryVariables) {
		t.Errorf("the library sets %v, this test knows %v", got, libraryVariables)
	}
}

func TestCharts_SetOnlyKnownAndAllRequiredVariables(t *testing.T) {
	t.Parallel()
	for _, name := range services {
		reads, set, v := readVariables(t, "services/"+name), map[string]bool{}, valuesOf(t, name)
		for _, variable := range libraryVariables {
			if _, ok := reads[variable]; ok {
				set[variable] = true
			}
		}
		for variable := range v.Env {
			set[variable] = true
		}
		for _, variable := range slices.Concat(v.Secret.Keys, v.Secret.Optional, v.HostAddress) {
			set[variable] = true
		}
		compare(t, "helm/"+name+"/values.yaml", set, reads)
		for variable := range reads {
			if secretVariable.MatchString(variable) && variable != "TRUSTED_KEYS" && variable != "POSTGRES_MIGRATE_URL" &&
				!slices.Contains(slices.Concat(v.Secret.Keys, v.Secret.Optional), variable) {
				t.Errorf("helm/%s/values.yaml: %s holds a secret: add it to secret.optional (or to secret.keys)", name, variable)
			}
		}
	}
}

// valuesSchema returns values.schema.json of a service: the library's schema, with the binary's
// variables under env.
func valuesSchema(t *testing.T, name string) []byte {
	t.Helper()
	var whole map[string]any
	if err := json.Unmarshal([]byte(strings.Join(lines(t, "helm/ringfence-lib/service.schema.json"), "\n")), &whole); err != nil {
		t.Fatal(err)
	}
	properties, v := map[string]any{}, valuesOf(t, name)
	from := slices.Concat(libraryVariables, v.Secret.Keys, v.Secret.Optional)
	for variable, help := range described(t, "services/"+name) {
		if !slices.Contains(from, variable) {
			properties[variable] = map[string]any{"type": []string{"string", "number", "boolean"}, "description": help}
		}
	}
	whole["properties"].(map[string]any)["env"] = map[string]any{
		"type": "object", "additionalProperties": false, "properties": properties,
		"patternProperties": map[string]any{"^(OTEL_[A-Z_]+|GOMEMLIMIT|GOGC|SSL_CERT_FILE)$": map[string]any{"type": []string{"string", "number", "boolean"}}},
	}
	text, err := json.MarshalIndent(whole, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

func described(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	reads := readVariables(t, dir)
	for _, below := range []string{dir, "libs"} {
		for _, match := range structTag.FindAllStringSubmatch(goText(t, below), -1) {
			of := reflect.StructTag(match[1])
			name, _, _ := strings.Cut(of.Get("env"), ",")
			if _, ok := reads[name]; !ok {
				continue
			}
			found[name] = of.Get("help")
			if standard := of.Get("envDefault"); standard != "" {
				found[name] += " Default: " + standard
			}
		}
	}
	return found
}

func TestCharts_SchemasAcceptOnlyKnownVariables(t *testing.T) {
	t.Parallel()
	for _, name := range withConsole {
		compareGolden(t, filepath.Join(root, "helm", name, "values.schema.json"), valuesSchema(t, name))
	}
}

// compareGolden compares got with a committed file, or writes the file if RINGFENCE_UPDATE is set.
func compareGolden(t *testing.T, path string, got []byte) {
	t.Helper()
	if os.Getenv("RINGFENCE_HELM") == "" {
		t.Skip("RINGFENCE_HELM names no helm: `make charts` builds one and runs this")
	}
	if os.Getenv("RINGFENCE_UPDATE") != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == string(got) {
		return
	}
	at, before, after := 0, strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	for at < min(len(before), len(after)) && before[at] == after[at] {
		at++
	}
	t.Errorf("%s differs from line %d on: run `make goldens`, check the difference and commit it\nwas: %q\nis:  %q",
		path, at+1, strings.Join(before[at:min(at+2, len(before))], "\n"),
		strings.Join(after[at:min(at+2, len(after))], "\n"))
}
