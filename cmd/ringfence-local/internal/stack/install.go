package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// install installs Postgres with the package manager: as root, through sudo if sudo needs no
// password, or with Homebrew as an ordinary user. Some packages also start a system-wide server.
// install does not change that server, which uses another port.
func (s Source) install(ctx context.Context) error {
	var sudo []string
	root := os.Geteuid() == 0
	if !root && runtime.GOOS != "darwin" {
		if exec.CommandContext(ctx, "sudo", "-n", "true").Run() != nil {
			return errors.New("this user is not root, and sudo needs a password")
		}
		sudo = []string{"sudo", "-n"}
	}
	for _, manager := range []struct {
		name  string
		steps [][]string
	}{
		{"apt-get", [][]string{{"apt-get", "update", "-q"}, {"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-q", "postgresql"}}},
		{"dnf", [][]string{{"dnf", "install", "-y", "-q", "postgresql-server"}}},
		{"apk", [][]string{{"apk", "add", "--no-cache", "postgresql"}}},
		{"brew", [][]string{{"brew", "install", "--quiet", "postgresql@17"}}},
	} {
		if _, err := exec.LookPath(manager.name); err != nil || (manager.name == "brew" && root) {
			continue
		}
		s.Note("installing Postgres with %s (this happens once and takes about a minute)", manager.name)
		for _, step := range manager.steps {
			step = append(append([]string{}, sudo...), step...)
			out, err := exec.CommandContext(ctx, step[0], step[1:]...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", strings.Join(step, " "), err, lastLine(string(out)))
			}
		}
		return nil
	}
	return errors.New("no supported package manager")
}

// download downloads and unpacks the Postgres binaries. The library embedded-postgres does this
// only when it starts a server, so download starts a server and stops it.
func (s Source) download(ctx context.Context) error {
	s.Note("downloading Postgres (this happens once)")
	dir := filepath.Join(s.Downloads, "postgres-17")
	scratch, err := os.MkdirTemp(s.Downloads, "download-")
	if err != nil {
		return fmt.Errorf("make directory for the download: %w", err)
	}
	defer os.RemoveAll(scratch)
	free, err := Free()
	if err != nil {
		return err
	}
	server := embedded.NewDatabase(embedded.DefaultConfig().
		Version(embedded.V17).Port(uint32(free)).Logger(io.Discard).
		CachePath(filepath.Join(scratch, "cache")).RuntimePath(filepath.Join(scratch, "run")).BinariesPath(dir).
		StartParameters(map[string]string{"unix_socket_directories": ""}))
	done := make(chan error, 1)
	go func() {
		err := server.Start()
		if err == nil {
			err = server.Stop()
		}
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, missing := os.Stat(filepath.Join(dir, "bin", "postgres")); missing == nil {
		return nil // ignore an error of the server, which cannot start as root
	}
	return err
}
