package kit

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Postgres is a throw-away server of its own, apart from the one the stack would start.
type Postgres struct {
	// URL connects as superuser.
	URL string

	cmd *exec.Cmd
	in  interface{ Close() error }
}

// StartPostgres starts one through `ringfence-local with-postgres`, which takes the given flags (--durable: commits
// reach the disk).
func StartPostgres(bin string, flags ...string) (*Postgres, error) {
	args := append([]string{"with-postgres"}, flags...)
	args = append(args, "--", "sh", "-c", `echo "url=$RINGFENCE_TEST_POSTGRES"; cat`)
	cmd := exec.Command(filepath.Join(bin, "ringfence-local"), args...)
	// with-postgres hands on a server that the environment names already, and two stacks in one database do each other's work.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "RINGFENCE_TEST_POSTGRES=") })
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a Postgres: %w", err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "url="); ok {
			return &Postgres{URL: url, cmd: cmd, in: in}, nil
		}
	}
	return nil, errors.Join(errors.New("a Postgres ended before it was ready"), cmd.Wait())
}

// Stop ends it and removes its data.
func (p *Postgres) Stop() error {
	_ = p.in.Close()
	return p.cmd.Wait()
}
