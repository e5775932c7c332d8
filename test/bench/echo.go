// Measurements of the audio of calls. One process runs the dialer's RTP streams. A second process
// is the remote side of all calls and sends every packet back.

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// EchoCommand is the argument with which this program runs as the remote side of the calls.
const EchoCommand = "echo-rtp"

// Echo opens the given number of UDP ports, prints their addresses in one line, and sends each
// packet back to its source until its input ends.
func Echo(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: %s <ports>", EchoCommand)
	}
	ports, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("read the number of ports: %w", err)
	}
	addresses := make([]string, ports)
	for i := range ports {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return fmt.Errorf("open a far end: %w", err)
		}
		addresses[i] = conn.LocalAddr().String()
		go func() {
			packet := make([]byte, 1500)
			for {
				n, from, err := conn.ReadFromUDPAddrPort(packet)
				if err != nil {
					return
				}
				_, _ = conn.WriteToUDPAddrPort(packet[:n], from)
			}
		}()
	}
	fmt.Println(strings.Join(addresses, ","))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

type peers struct {
	addresses string
	pid       string
	cmd       *exec.Cmd
	in        io.Closer
	out       *bufio.Reader
}

// startPeers starts the remote sides of count calls in a child process. kind is the command of this
// process.
func startPeers(kind string, count int) (*peers, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, kind, strconv.Itoa(count))
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
		return nil, fmt.Errorf("start the far ends: %w", err)
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		_ = in.Close()
		return nil, fmt.Errorf("the far ends ended before they listened: %w", cmd.Wait())
	}
	return &peers{addresses: strings.TrimSpace(line), pid: strconv.Itoa(cmd.Process.Pid), cmd: cmd, in: in, out: lines}, nil
}

func (p *peers) stop() []byte {
	_ = p.in.Close()
	output, _ := io.ReadAll(p.out)
	_ = p.cmd.Wait()
	return output
}
