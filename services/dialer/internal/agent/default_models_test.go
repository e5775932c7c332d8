package agent_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"

	"ringfence.dev/libs/aimodel"
	"ringfence.dev/services/dialer/internal/agent/live"
	"ringfence.dev/services/dialer/internal/agent/realtime"
	"ringfence.dev/services/dialer/internal/summary"
)

func defaultModels(t *testing.T) map[string]string {
	t.Helper()
	var voice realtime.Config
	var duplex live.Config
	var summary summary.Config
	for _, cfg := range []any{&voice, &duplex, &summary} {
		if err := env.ParseWithOptions(cfg, env.Options{Environment: map[string]string{}}); err != nil {
			t.Fatalf("read defaults of %T: %v", cfg, err)
		}
	}
	return map[string]string{
		"REALTIME_MODEL":               voice.Model,
		"REALTIME_TRANSCRIPTION_MODEL": voice.TranscriptionModel,
		"LIVE_MODEL":                   duplex.Model,
		"LIVE_BACKEND_MODEL":           duplex.BackendModel,
		"SUMMARY_MODEL":                summary.Model,
	}
}

type sdkModel struct {
	kind, name string
	shutdown   string // announced shutdown date; empty if none
}

var shutdownDate = regexp.MustCompile(`Announced shutdown date: (\d{4}-\d\d-\d\d)`)

// sdkModels reads the model constants of a package of openai-go. It parses the source in the module
// cache, because only the comments of the constants contain the shutdown dates.
func sdkModels(t *testing.T, path string) []sdkModel {
	t.Helper()
	list := exec.CommandContext(
		t.Context(),
		"go",
		"list",
		"-f",
		`{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`,
		path,
	)
	files, err := list.Output()
	if err != nil {
		t.Fatalf("find %s: %v", path, err)
	}
	var models []sdkModel
	for _, name := range strings.Fields(string(files)) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatalf("parse %s: %v", name, err)
		}
		for _, decl := range file.Decls {
			constants, ok := decl.(*ast.GenDecl)
			if !ok || constants.Tok != token.CONST {
				continue
			}
			for _, spec := range constants.Specs {
				models = append(models, sdkModelOf(spec)...)
			}
		}
	}
	return models
}

func sdkModelOf(spec ast.Spec) []sdkModel {
	value, ok := spec.(*ast.ValueSpec)
	if !ok || len(value.Values) != 1 {
		return nil
	}
	kind, typed := value.Type.(*ast.Ident)
	text, literal := value.Values[0].(*ast.BasicLit)
	if !typed || !literal {
		return nil
	}
	name, err := strconv.Unquote(text.Value)
	if err != nil {
		return nil
	}
	model := sdkModel{kind: kind.Name, name: name}
	if date := shutdownDate.FindStringSubmatch(value.Doc.Text()); date != nil {
		model.shutdown = date[1]
	}
	return []sdkModel{model}
}

func TestDefaultModels_AreInTheSDKAndNotRetired(t *testing.T) {
	t.Parallel()
	served := map[string][]sdkModel{
		"REALTIME_MODEL":               sdkModels(t, "github.com/openai/openai-go/v3/realtime"),
		"REALTIME_TRANSCRIPTION_MODEL": sdkModels(t, "github.com/openai/openai-go/v3/realtime"),
		"LIVE_MODEL":                   sdkModels(t, "github.com/openai/openai-go/v3/live"),
		"LIVE_BACKEND_MODEL":           sdkModels(t, "github.com/openai/openai-go/v3/shared"),
		"SUMMARY_MODEL":                sdkModels(t, "github.com/openai/openai-go/v3/shared"),
	}
	kinds := map[string]string{
		"REALTIME_MODEL":               "RealtimeSessionCreateRequestModel",
		"REALTIME_TRANSCRIPTION_MODEL": "AudioTranscriptionModel",
		"LIVE_MODEL":                   "SessionConfigModel",
		"LIVE_BACKEND_MODEL":           "ChatModel",
		"SUMMARY_MODEL":                "ChatModel",
	}
	for variable, model := range defaultModels(t) {
		at := slices.IndexFunc(served[variable],
			func(m sdkModel) bool { return m.kind == kinds[variable] && m.name == model })
		if at < 0 {
			t.Errorf("default of %s = %q, want a %s of openai-go", variable, model, kinds[variable])
			continue
		}
		if shutdown := served[variable][at].shutdown; shutdown != "" {
			t.Errorf("default of %s = %q, which OpenAI shuts down on %s", variable, model, shutdown)
		}
		if retirement, retires := aimodel.RetirementOf(model); retires {
			t.Errorf("default of %s = %q, which retires on %s", variable, model, retirement.At)
		}
	}
}

// If a new version of openai-go contains new shutdown dates, this test fails until libs/aimodel
// contains them too.
func TestRetirements_HaveTheDatesOfTheSDK(t *testing.T) {
	t.Parallel()
	for path, kinds := range map[string][]string{
		"github.com/openai/openai-go/v3/shared":   {"ChatModel"},
		"github.com/openai/openai-go/v3/realtime": {"RealtimeSessionCreateRequestModel", "AudioTranscriptionModel"},
	} {
		for _, model := range sdkModels(t, path) {
			if !slices.Contains(kinds, model.kind) || model.shutdown < "2026" {
				continue
			}
			retirement, known := aimodel.RetirementOf(model.name)
			if !known {
				t.Errorf("libs/aimodel has no retirement of %s, want %s", model.name, model.shutdown)
				continue
			}
			if day := retirement.At.Format(time.DateOnly); day != model.shutdown {
				t.Errorf("retirement of %s = %s, want %s", model.name, day, model.shutdown)
			}
		}
	}
}
