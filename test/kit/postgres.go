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

// Postgres is a temporary server of a test. A stack that gets its URL does not start its own
// server.
type Postgres struct {
	// URL connects to the server as superuser.
	URL string

	cmd *exec.Cmd
	in  interface{ Close() error }
}

// StartPostgres starts a server with `ringfence-local with-postgres` and the given flags. With
// --durable the server writes commits to the disk.
func StartPostgres(bin string, flags ...string) (*Postgres, error) {
	args := append([]string{"with-postgres"}, flags...)
	args = append(args, "--", "sh", "-c", `echo "url=$RINGFENCE_TEST_POSTGRES"; cat`)
	cmd := exec.Command(filepath.Join(bin, "ringfence-local"), args...)
	// with-postgres uses the server that RINGFENCE_TEST_POSTGRES names, if it is set. Remove the
	// variable, because two stacks must not share a database.
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

// Stop stops the server and deletes its data.
func (p *Postgres) Stop() error {
	_ = p.in.Close()
	return p.cmd.Wait()
}
