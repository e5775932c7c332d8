package contract

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
)

// TestClients_GeneratedClientPlacesACall generates a client from the OpenAPI document, as a
// customer does, and runs the program in test/clients, which places a call with it.
func TestClients_GeneratedClientPlacesACall(t *testing.T) {
	for _, language := range []struct {
		name     string
		generate func(t *testing.T, dir string) (run []string)
		want     []string
	}{
		{name: "typescript", generate: generateTypeScript},
		{name: "python", generate: generatePython, want: []string{"named DialingActor HeaderValues"}},
	} {
		t.Run(language.name, func(t *testing.T) {
			dir := t.TempDir()
			run := language.generate(t, dir)
			w := workspace(t)
			w.topUp(t, "10")
			cmd := command(t, dir, run...)
			cmd.Env = append(os.Environ(), "BASE_URL="+stack(t).Demo.BaseURL, "API_KEY="+w.write.key, "AGENT_ID="+w.agent,
				"TO="+number(1), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
			output, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %v:\n%s", run, err, output)
			}
			wanted := append(language.want, "refused 422 invalid_phone", "listed ", "event ", "call completed human ")
			for _, want := range wanted {
				if !strings.Contains(string(output), want) {
					t.Errorf("output does not contain %q:\n%s", want, output)
				}
			}
			if strings.Contains(strings.ToLower(string(output)), "false") {
				t.Errorf("a check of the program failed:\n%s", output)
			}
		})
	}
}

// generateTypeScript generates api.d.ts with openapi-typescript and compiles the program.
func generateTypeScript(t *testing.T, dir string) (run []string) {
	t.Helper()
	modules := clientTool(t, "typescript/node_modules")
	source := absolutePath(t, filepath.Join(root, "test/clients/typescript"))
	for _, name := range []string{"package.json", "tsconfig.json", "place_call.ts"} {
		copyFile(t, filepath.Join(source, name), filepath.Join(dir, name))
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	runTool(t, dir, "node", filepath.Join(modules, "openapi-typescript/bin/cli.js"), descriptionFile(t), "-o", "api.d.ts")
	runTool(t, dir, "node", filepath.Join(modules, "typescript/bin/tsc"), "-p", ".")
	return []string{"node", "place_call.js"}
}

// generatePython generates the package ringfence_client with openapi-python-client.
func generatePython(t *testing.T, dir string) (run []string) {
	t.Helper()
	generator := clientTool(t, "python/bin/openapi-python-client")
	source := absolutePath(t, filepath.Join(root, "test/clients/python/place_call.py"))
	copyFile(t, source, filepath.Join(dir, "place_call.py"))
	generate := command(t, dir, generator, "generate", "--path", descriptionFile(t), "--output-path",
		filepath.Join(dir, "ringfence_client"), "--meta", "none", "--fail-on-warning")
	generate.Env = append(os.Environ(), "PATH="+filepath.Dir(generator)+":"+os.Getenv("PATH"))
	if output, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("openapi-python-client: %v:\n%s", err, output)
	}
	return []string{filepath.Join(filepath.Dir(generator), "python3"), "place_call.py"}
}

func descriptionFile(t *testing.T) string {
	t.Helper()
	return absolutePath(t, filepath.Join(root, "proto/openapi/openapi.yaml"))
}

// clientTool returns the path of a file that `make clients` installs. If the file is missing,
// clientTool skips the test. With CI=true the test fails instead.
func clientTool(t *testing.T, name string) string {
	t.Helper()
	path := absolutePath(t, filepath.Join(root, "bin/tools/clients", name))
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Skipf("%s is missing: `make clients` installs it with Node.js 20 and Python 3.10", path)
	} else if err != nil {
		t.Fatalf("%v: run `make clients`", err)
	}
	return path
}

func absolutePath(t *testing.T, path string) string {
	t.Helper()
	found, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	return cmd
}

func runTool(t *testing.T, dir string, args ...string) {
	t.Helper()
	if output, err := command(t, dir, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v:\n%s", args, err, output)
	}
}

// TestClients_RecipesForTheFirstWebhookWork runs the recipe of docs/webhooks.md in each language
// as a new user does: the commands, and the code from the page.
func TestClients_RecipesForTheFirstWebhookWork(t *testing.T) {
	blocks, err := kit.PageBlocks(root, kit.RecipesTest)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/webhooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	programs := []string{"npm", "python3", "go"}
	for _, recipe := range []struct{ language, fence, file, program string }{
		{language: "TypeScript", fence: "ts", file: "receiver.ts", program: "npm"},
		{language: "Python", fence: "python", file: "receiver.py", program: "python3"},
		{language: "Go", fence: "go", file: "receiver.go", program: "go"},
	} {
		t.Run(recipe.language, func(t *testing.T) {
			for _, program := range []string{"curl", "jq", recipe.program} {
				if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") != "true" {
					t.Skipf("the recipe needs %s", program)
				}
			}
			code := regexp.MustCompile("(?s)```" + recipe.fence + "\n(.*?)```").FindStringSubmatch(string(page))
			if code == nil || !strings.Contains(string(page), "`"+recipe.file+"`") {
				t.Fatalf("the page has no code for %s", recipe.file)
			}
			others := slices.DeleteFunc(slices.Clone(programs), func(p string) bool { return p == recipe.program })
			runRecipe(t, recipe.file, code[1], recipeScript(blocks, others))
		})
	}
}

// recipeScript returns the commands without the blocks of the other languages, whose programs it
// gets. The last block stops the programs when the input of the script ends.
func recipeScript(blocks []kit.PageBlock, others []string) string {
	var script strings.Builder
	for _, b := range blocks {
		isOther := func(program string) bool { return strings.Contains(b.Text, "\n"+program+" ") }
		switch {
		case slices.ContainsFunc(others, isOther):
		case strings.HasPrefix(b.Text, "kill "):
			script.WriteString("read -r _ || true\n" + b.Text)
		default:
			script.WriteString(b.Text)
		}
	}
	return script.String()
}

// runRecipe writes the code to the file, runs the script until it has verified the webhook of a
// call, and stops it as the page says.
func runRecipe(t *testing.T, file, code, script string) {
	t.Helper()
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	ownPort := strings.NewReplacer("3000", strconv.Itoa(port))
	dir := checkout(t)
	if err := os.WriteFile(filepath.Join(dir, file), []byte(ownPort.Replace(code)), 0o644); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	shell := command(t, dir, "sh", "-euc", ownPort.Replace(script))
	shell.Env = append(os.Environ(), stack(t).Env...)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	got := launch(t, shell)
	t.Cleanup(func() { _ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) })
	got.prints(t, "verified call.completed interested")
	t.Logf("%.0f s from the first command to the verified webhook", time.Since(began).Seconds())
	if err := input.Close(); err != nil {
		t.Error(err)
	}
	<-got.done
	if got.err != nil {
		t.Errorf("the commands ended with %v:\n%s", got.err, got.printed())
	}
}
