package peertest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// asteriskVariable is the environment variable with the folder into which `make asterisk` installed
// Asterisk.
const asteriskVariable = "RINGFENCE_ASTERISK"

// AsteriskInstalled skips the test unless Asterisk is installed. With CI=true the test fails
// instead.
func AsteriskInstalled(t testing.TB) {
	t.Helper()
	if !enabled {
		t.Skip("needs go test -tags peers, as in make test-nightly")
	}
	const remedy = "`make nightly-sip` installs Asterisk and sets " + asteriskVariable
	if _, err := os.Stat(filepath.Join(os.Getenv(asteriskVariable), "usr/sbin/asterisk")); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("Asterisk is missing: %s", remedy)
		}
		t.Skipf("SKIPPED: Asterisk is missing: %s", remedy)
	}
}

// Asterisk is a running Asterisk with a separate configuration folder.
type Asterisk struct {
	*Program
	dir string
}

// StartAsterisk starts Asterisk with the given configuration files (name, content) and waits until
// it is ready. Asterisk runs until Stop is called. All files that it writes are in dir. Recordings
// are in dir/spool/monitor.
func StartAsterisk(dir string, files map[string]string) (*Asterisk, error) {
	root := os.Getenv(asteriskVariable)
	libraries, err := asteriskLibraries(root)
	if err != nil {
		return nil, err
	}
	for _, folder := range []string{"etc", "run", "log/cdr-custom", "lib/documentation", "spool"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return nil, fmt.Errorf("make folder of Asterisk: %w", err)
		}
	}
	all := map[string]string{
		"asterisk.conf": fmt.Sprintf(`[directories]
astetcdir => %[1]s/etc
astmoddir => %[2]s/asterisk/modules
astvarlibdir => %[1]s/lib
astdbdir => %[1]s/lib
astkeydir => %[1]s/lib
astdatadir => %[3]s/usr/share/asterisk
astagidir => %[3]s/usr/share/asterisk/agi-bin
astspooldir => %[1]s/spool
astrundir => %[1]s/run
astlogdir => %[1]s/log
`, dir, libraries, root),
		"modules.conf": "[modules]\nautoload=yes\n",
		"logger.conf":  "[logfiles]\nconsole => notice,warning,error,verbose\n",
	}
	maps.Copy(all, files)
	for name, content := range all {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("write configuration of Asterisk: %w", err)
		}
	}
	command := asteriskCommand(root, libraries, dir, "-f", "-vvv")
	program, err := Run(dir, command[0], command[1:]...)
	if err != nil {
		return nil, err
	}
	a := &Asterisk{Program: program, dir: dir}
	if err := a.awaitReady(); err != nil {
		a.Stop()
		return nil, fmt.Errorf("%w\n%s", err, a.Output())
	}
	return a, nil
}

// Shell returns the beginning of a shell command that runs the program of this Asterisk. A test can
// append arguments, for example -rx and a command of the Asterisk console.
func (a *Asterisk) Shell() string {
	root := os.Getenv(asteriskVariable)
	libraries, _ := asteriskLibraries(root)
	return "'" + strings.Join(asteriskCommand(root, libraries, a.dir), "' '") + "'"
}

func (a *Asterisk) awaitReady() error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	hang := time.After(hangTimeout)
	for !strings.Contains(a.Output(), "Asterisk Ready.") {
		select {
		case <-a.done:
			return errors.New("asterisk ended before it was ready")
		case <-hang:
			return errors.New("asterisk did not become ready")
		case <-tick.C:
		}
	}
	return nil
}

// asteriskCommand returns the command that runs Asterisk with the dynamic loader of its Debian
// release. Asterisk needs a newer C library than the library of this machine.
func asteriskCommand(root, libraries, dir string, args ...string) []string {
	loaders, _ := filepath.Glob(filepath.Join(libraries, "ld-linux*.so.*"))
	loader := slices.Concat(loaders, []string{"ld-linux is missing"})[0]
	path := libraries + ":" + filepath.Join(root, "usr/lib")
	command := []string{loader, "--library-path", path, filepath.Join(root, "usr/sbin/asterisk")}
	return append(append(command, "-C", filepath.Join(dir, "etc/asterisk.conf")), args...)
}

func asteriskLibraries(root string) (string, error) {
	folder := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	libraries := filepath.Join(root, "usr/lib", folder)
	if _, err := os.Stat(filepath.Join(libraries, "asterisk/modules")); folder == "" || err != nil {
		return "", fmt.Errorf("%s=%q has no Asterisk for %s", asteriskVariable, root, runtime.GOARCH)
	}
	return libraries, nil
}
