// Package farm is the far end of SIP trunks in end-to-end trials: sipp, playing a script that chooses by the dialled number, and its own log of every message, which is what
// judges hold for dials. It knows nothing of the stack.
package farm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"ringfence.dev/libs/loopback"
)

// Program is Debian's sip-tester.
const Program = "sipp"

// Farm is one sipp at a UDP port of loopback, until Stop.
type Farm struct {
	Port int
	dir  string
	cmd  *exec.Cmd
	said bytes.Buffer
}

// Start has sipp play a script (see Script) from the folder, where its logs lie. It returns when sipp listens.
func Start(dir, script string) (*Farm, error) {
	port, err := loopback.Port()
	if err != nil {
		return nil, err
	}
	media, err := loopback.Port() // and the next but one, for video
	if err != nil {
		return nil, err
	}
	f := &Farm{Port: port, dir: dir}
	path := filepath.Join(dir, "script.xml")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		return nil, err
	}
	f.cmd = exec.Command(Program, "-sf", path, "-i", "127.0.0.1", "-mi", "127.0.0.1", "-p", strconv.Itoa(port), "-mp", strconv.Itoa(media), "-rtp_echo", "-nostdin", "-aa",
		"-trace_msg", "-message_file", f.messages(), "-trace_err", "-error_file", f.errors())
	f.cmd.Dir, f.cmd.Stderr = dir, &f.said
	if err := f.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", Program, err)
	}
	for begun := time.Now(); !loopback.Open("udp", port); time.Sleep(20 * time.Millisecond) { // a poll of the condition
		if time.Since(begun) > 10*time.Second {
			f.Stop()
			return nil, fmt.Errorf("%s does not listen: %s", Program, f.Complaints())
		}
	}
	return f, nil
}

func (f *Farm) messages() string { return filepath.Join(f.dir, "messages.log") }
func (f *Farm) errors() string   { return filepath.Join(f.dir, "errors.log") }

// Stop ends it at once.
func (f *Farm) Stop() {
	_ = f.cmd.Process.Kill()
	_ = f.cmd.Wait()
}

// Complaints are what sipp said was wrong.
func (f *Farm) Complaints() string {
	written, _ := os.ReadFile(f.errors())
	return f.said.String() + string(written)
}
