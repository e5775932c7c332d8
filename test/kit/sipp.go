package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"ringfence.dev/libs/testkit"
)

// Program is the program in Debian's package sip-tester.
const Program = "sipp"

// Sipp is the far end of SIP trunks: a running sipp at a UDP port. It executes a script that
// depends on the dialed number. Its log contains every message.
type Sipp struct {
	Port   int
	dir    string
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan struct{}
}

// StartSipp starts sipp at a port of loopback, as StartSippAt does.
func StartSipp(ctx context.Context, dir, script string) (*Sipp, error) {
	return StartSippAt(ctx, "127.0.0.1", dir, script)
}

// StartSippAt starts sipp with a script (see Script) at an address of this machine and returns when
// sipp listens. sipp writes its logs into dir.
func StartSippAt(ctx context.Context, address, dir, script string) (*Sipp, error) {
	port, err := testkit.Port()
	if err != nil {
		return nil, err
	}
	media, err := testkit.Port() // sipp also uses the second port after this port, for video
	if err != nil {
		return nil, err
	}
	f := &Sipp{Port: port, dir: dir, ended: make(chan struct{})}
	path := filepath.Join(dir, "script.xml")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		return nil, err
	}
	f.cmd = exec.Command(Program, "-sf", path, "-i", address, "-mi", address,
		"-p", strconv.Itoa(port), "-mp", strconv.Itoa(media), "-rtp_echo", "-nostdin", "-aa",
		"-trace_msg", "-message_file", f.messages(), "-trace_err", "-error_file", f.errors())
	f.cmd.Dir, f.cmd.Stderr = dir, &f.stderr
	if err := f.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", Program, err)
	}
	go func() { _ = f.cmd.Wait(); close(f.ended) }()
	err = Until(ctx, HangTimeout, Program+" listens", func() (bool, error) {
		select {
		case <-f.ended:
			return false, errSippEnded
		default:
			return testkit.Open("udp", port), nil
		}
	})
	if err != nil {
		f.Stop()
		return nil, fmt.Errorf("%w: %s", err, f.Errors())
	}
	return f, nil
}

var errSippEnded = errors.New(Program + " ended before it listened")

func (f *Sipp) messages() string { return filepath.Join(f.dir, "messages.log") }
func (f *Sipp) errors() string   { return filepath.Join(f.dir, "errors.log") }

// Stop kills sipp and waits until the process has ended.
func (f *Sipp) Stop() {
	_ = f.cmd.Process.Kill()
	<-f.ended
}

// Errors returns the errors that sipp logged.
func (f *Sipp) Errors() string {
	written, _ := os.ReadFile(f.errors())
	return f.stderr.String() + string(written)
}
