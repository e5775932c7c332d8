package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNoRuntime is wrapped if the compiler or interpreter of a language is not installed.
var ErrNoRuntime = errors.New("not on this machine")

// ExampleReceiver is the example webhook receiver in one language, ready to run.
type ExampleReceiver struct {
	// Receive is the command that serves webhooks. Check is the command that tests the verify
	// function with vectors.json. Check is empty for Go, because a Go test covers that function.
	Receive, Check []string
	// Dir is the working directory of both commands. Env is added to their environment.
	Dir string
	Env []string
}

// Command returns a command that runs line in the example's directory. The variables in env are
// added to its environment.
func (e ExampleReceiver) Command(ctx context.Context, line []string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir, cmd.Env = e.Dir, append(append(os.Environ(), e.Env...), env...)
	return cmd
}

// ReceiverLanguages returns the folders of examples/receivers.
func ReceiverLanguages() []string { return []string{"go", "typescript", "python"} }

// PrepareReceiver builds the example of a language in examplesDir (examples/receivers) into outDir.
// It returns an error if the TypeScript example has a type error.
func PrepareReceiver(ctx context.Context, language, examplesDir, outDir string) (ExampleReceiver, error) {
	examplesDir, err := filepath.Abs(examplesDir)
	if err != nil {
		return ExampleReceiver{}, err
	}
	e := ExampleReceiver{Dir: filepath.Join(examplesDir, language)}
	switch language {
	case "go":
		program := filepath.Join(outDir, "receiver")
		e.Receive = []string{program}
		return e, runQuiet(e.Command(ctx, []string{"go", "build", "-o", program, "."}))
	case "typescript":
		tsc, err := typescriptCompiler(examplesDir)
		if err != nil {
			return e, err
		}
		if err := runQuiet(e.Command(ctx, append(tsc, "--outDir", outDir))); err != nil {
			return e, err
		}
		e.Env = []string{"VECTORS=" + filepath.Join(examplesDir, "vectors.json")}
		e.Receive, e.Check = []string{"node", "receiver.js"}, []string{"node", "--test", "verify.test.js"}
		describes, err := os.ReadFile(filepath.Join(e.Dir, "package.json")) // package.json declares ES modules
		if err != nil {
			return e, err
		}
		e.Dir = outDir
		return e, os.WriteFile(filepath.Join(outDir, "package.json"), describes, 0o644)
	default:
		e.Env = []string{"PYTHONDONTWRITEBYTECODE=1"}
		e.Receive, e.Check = []string{"python3", "receiver.py"}, []string{"python3", "-m", "unittest", "verify_test"}
		if exec.Command("python3", "-c", "import sys; sys.exit(sys.version_info < (3, 8))").Run() != nil {
			return e, fmt.Errorf("python3 of 3.8 or newer: %w", ErrNoRuntime)
		}
		return e, nil
	}
}

func typescriptCompiler(folder string) ([]string, error) {
	if exec.Command("node", "-e", "process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)").Run() != nil {
		return nil, fmt.Errorf("node of 20 or newer: %w", ErrNoRuntime)
	}
	modules := filepath.Join(folder, "..", "..", "bin", "tools", "typescript", "node_modules")
	tsc := filepath.Join(modules, "typescript", "bin", "tsc")
	if _, err := os.Stat(tsc); err != nil {
		return nil, fmt.Errorf("%s, which make test-e2e installs with npm: %w", tsc, ErrNoRuntime)
	}
	return []string{
		"node", tsc, "-p", filepath.Join(folder, "typescript"), "--typeRoots", filepath.Join(modules, "@types"),
	}, nil
}

// runQuiet returns the output of a command only in the error.
func runQuiet(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w:\n%s", cmd.Args, err, out)
	}
	return nil
}
