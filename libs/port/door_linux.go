package port

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// turnAway drops packets with SYN and without ACK (RFC 9293, 3.1: the flags are byte 13 of the header) and passes every other: those of
// connections that are nearly made arrive at the listener, too.
func (d *Door) turnAway() error {
	program := [...]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0x12},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0x02, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	return d.onSocket(func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
}

// someWait says whether connections stand in the queue: of a listener, the kernel tells their number as unacked.
func (d *Door) someWait() (some bool) {
	err := d.onSocket(func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			some = info.Unacked > 0
		}
		return err
	})
	return err == nil && some
}

func (d *Door) onSocket(do func(fd int) error) error {
	raw, err := d.SyscallConn()
	if err != nil {
		return fmt.Errorf("reach the socket: %w", err)
	}
	var fault error
	if err := raw.Control(func(fd uintptr) { fault = do(int(fd)) }); err != nil {
		return fmt.Errorf("reach the socket: %w", err)
	}
	return fault
}
