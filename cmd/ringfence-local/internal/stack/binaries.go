package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// minMajor is the lowest supported major version of Postgres.
const minMajor = 15

// Binaries is an installation of Postgres.
type Binaries struct {
	Dir   string
	Major int
}

func (b Binaries) path(name string) string { return filepath.Join(b.Dir, name) }

// Source finds or installs the binaries of Postgres.
type Source struct {
	Account Account
	// Downloads is the folder for downloaded binaries.
	Downloads string
	// Major is the required major version: the version that created the data. 0 accepts every
	// supported version.
	Major int
	// Note prints progress to the user.
	Note func(format string, args ...any)
}

// Find returns an installed Postgres. If none is installed, it installs one with the package
// manager, or downloads one. An error is one line that contains the remedy.
func (s Source) Find(ctx context.Context) (Binaries, error) {
	if dir := os.Getenv("PG_BINDIR"); dir != "" {
		if major, ok := s.tryVersion(ctx, dir); !ok || major < minMajor {
			return Binaries{}, fmt.Errorf("PG_BINDIR is %s, which contains no usable Postgres %d or newer: set it to the "+
				"directory of initdb and postgres, or unset it", dir, minMajor)
		}
	}
	if b, ok := s.onMachine(ctx); ok {
		return b, nil
	}
	if s.Major != 0 {
		return Binaries{}, fmt.Errorf("the database was created by Postgres %d, which is no longer installed: install it, "+
			"set PG_BINDIR to its bin directory, or remove the database", s.Major)
	}
	installing := s.install(ctx)
	if b, ok := s.onMachine(ctx); ok {
		return b, nil
	}
	downloading := s.download(ctx)
	if b, ok := s.onMachine(ctx); ok {
		return b, nil
	}
	return Binaries{}, fmt.Errorf("no Postgres %d or newer here (install: %w; download: %w): %s, set PG_BINDIR to its "+
		"bin directory, or set POSTGRES_URL to another server",
		minMajor, installing, downloading, remedy())
}

func remedy() string {
	if runtime.GOOS == "darwin" {
		return "run `brew install postgresql@17`"
	}
	return "run `sudo apt-get install postgresql` (or your system's package)"
}

func (s Source) onMachine(ctx context.Context) (Binaries, bool) {
	for _, dir := range s.places(ctx) {
		major, ok := s.tryVersion(ctx, dir)
		if ok && major >= minMajor && (s.Major == 0 || s.Major == major) {
			return Binaries{Dir: dir, Major: major}, true
		}
	}
	return Binaries{}, false
}

func (s Source) places(ctx context.Context) []string {
	var dirs []string
	if dir := os.Getenv("PG_BINDIR"); dir != "" {
		dirs = append(dirs, dir)
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/usr/libexec/postgresql*",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		filepath.Join(s.Downloads, "postgres-*", "bin"),
	} {
		dirs = append(dirs, highestFirst(pattern)...)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	return dirs
}

var digits = regexp.MustCompile(`\d+`)

// highestFirst returns the matching paths, sorted by the version number in the path: 16 precedes 9.
func highestFirst(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	before, _, _ := strings.Cut(pattern, "*")
	version := func(path string) int {
		n, _ := strconv.Atoi(digits.FindString(strings.TrimPrefix(path, before)))
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	return found
}

var printedVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// tryVersion runs `postgres --version` as the account that will run the server. Success shows that
// the account can use the binary and its libraries.
func (s Source) tryVersion(ctx context.Context, dir string) (major int, ok bool) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0, false
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version")
	cmd.Dir = "/"
	cmd.SysProcAttr = s.Account.attributes()
	out, err := cmd.Output()
	match := printedVersion.FindSubmatch(out)
	if err != nil || match == nil {
		return 0, false
	}
	major, err = strconv.Atoi(string(match[1]))
	return major, err == nil
}
