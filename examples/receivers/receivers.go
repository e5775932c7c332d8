// Package receivers knows how the example of each language is made ready to run, so that tests hold exactly what a customer
// copies against shared vectors and against real deliveries. The examples know nothing of it.
package receivers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrMissing is wrapped when this machine lacks what a language needs.
var ErrMissing = errors.New("not on this machine")

// Example is one language's receiver, ready to run.
type Example struct {
	// Receive serves webhooks. Check holds the verifying function against vectors.json; Go's has a test of its own and none here.
	Receive, Check []string
	// Dir is where both are run, with Env besides the environment.
	Dir string
	Env []string
}

// Command is one of the command lines with the example's folder and environment, and more of the latter.
func (e Example) Command(ctx context.Context, line []string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir, cmd.Env = e.Dir, append(append(os.Environ(), e.Env...), env...)
	return cmd
}

// Languages are the folders of examples.
func Languages() []string { return []string{"go", "typescript", "python"} }

// Prepare makes an example ready: folder is examples/receivers, and what is built goes to out. TypeScript that is not well typed
// is an error.
func Prepare(ctx context.Context, language, folder, out string) (Example, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return Example{}, err
	}
	e := Example{Dir: filepath.Join(folder, language)}
	switch language {
	case "go":
		program := filepath.Join(out, "receiver")
		e.Receive = []string{program}
		return e, succeed(e.Command(ctx, []string{"go", "build", "-o", program, "."}))
	case "typescript":
		tsc, err := compiler(folder)
		if err != nil {
			return e, err
		}
		if err := succeed(e.Command(ctx, append(tsc, "--outDir", out))); err != nil {
			return e, err
		}
		e.Env = []string{"VECTORS=" + filepath.Join(folder, "vectors.json")}
		e.Receive, e.Check = []string{"node", "receiver.js"}, []string{"node", "--test", "verify.test.js"}
		describes, err := os.ReadFile(filepath.Join(e.Dir, "package.json")) // says that these are ES modules
		if err != nil {
			return e, err
		}
		e.Dir = out
		return e, os.WriteFile(filepath.Join(out, "package.json"), describes, 0o644)
	default:
		e.Env = []string{"PYTHONDONTWRITEBYTECODE=1"}
		e.Receive, e.Check = []string{"python3", "receiver.py"}, []string{"python3", "-m", "unittest", "verify_test"}
		if exec.Command("python3", "-c", "import sys; sys.exit(sys.version_info < (3, 8))").Run() != nil {
			return e, fmt.Errorf("python3 of 3.8 or newer: %w", ErrMissing)
		}
		return e, nil
	}
}

// compiler is the command line of the pinned tsc of bin/tools, which `make test` puts there, for the TypeScript example.
func compiler(folder string) ([]string, error) {
	if exec.Command("node", "-e", "process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)").Run() != nil {
		return nil, fmt.Errorf("node of 20 or newer: %w", ErrMissing)
	}
	modules := filepath.Join(folder, "..", "..", "bin", "tools", "typescript", "node_modules")
	tsc := filepath.Join(modules, "typescript", "bin", "tsc")
	if _, err := os.Stat(tsc); err != nil {
		return nil, fmt.Errorf("%s, which make test installs with npm: %w", tsc, ErrMissing)
	}
	return []string{"node", tsc, "-p", filepath.Join(folder, "typescript"), "--typeRoots", filepath.Join(modules, "@types")}, nil
}

// succeed runs a command, and its output is the error.
func succeed(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w:\n%s", cmd.Args, err, out)
	}
	return nil
}
