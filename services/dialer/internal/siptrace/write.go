package siptrace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// Text returns messages as text. Before each message, there is a line with the time, direction,
// addresses and replica.
func Text(messages []Message) []byte {
	var text bytes.Buffer
	for _, m := range messages {
		from, to, direction := m.ends()
		fmt.Fprintf(&text, "%s %s %s %s -> %s at %s\n%s\n", m.At.UTC().Format(time.RFC3339Nano), direction, m.Transport,
			from, to, m.Replica, bytes.ReplaceAll(m.Data, []byte("\r\n"), []byte("\n")))
	}
	return text.Bytes()
}

func (m Message) ends() (from, to netip.AddrPort, direction string) {
	if m.Sent {
		return m.Local, m.Peer, "sent"
	}
	return m.Peer, m.Local, "received"
}

// These constants describe the classic file format of libpcap. Times are in microseconds, and each
// packet begins with its IP header.
const (
	pcapMagic   = 0xa1b2c3d4
	linkTypeRaw = 101
	snapLength  = 65_535
)

// Sizes of headers, and the protocol number of UDP.
const (
	ipv4Header, udpHeader = 20, 8
	protocolUDP           = 17
	hops                  = 64
)

// Pcap returns messages as a packet capture. Each message is written as one UDP packet, even if it
// was sent over TCP or TLS, because TCP segments are not recorded.
func Pcap(messages []Message) []byte {
	file := binary.LittleEndian.AppendUint32(nil, pcapMagic)
	file = binary.LittleEndian.AppendUint16(file, 2) // version 2.4 of the file format
	file = binary.LittleEndian.AppendUint16(file, 4)
	file = append(file, make([]byte, 8)...) // time zone (UTC) and accuracy of the times
	file = binary.LittleEndian.AppendUint32(file, snapLength)
	file = binary.LittleEndian.AppendUint32(file, linkTypeRaw)
	for _, m := range messages {
		packet := m.packet()
		at := m.At.UnixMicro()
		file = binary.LittleEndian.AppendUint32(file, uint32(at/1e6)) //nolint:gosec // fits until the year 2106
		file = binary.LittleEndian.AppendUint32(file, uint32(at%1e6)) //nolint:gosec // below a million
		// The packet's header contains the captured length and the original length, which are equal here.
		for range 2 {
			file = binary.LittleEndian.AppendUint32(file, uint32(len(packet))) //nolint:gosec // at most 65,535
		}
		file = append(file, packet...)
	}
	return file
}

// packet returns the message as an IP packet. If one of its addresses is IPv6, both are written as
// IPv6.
func (m Message) packet() []byte {
	from, to, _ := m.ends()
	udp := binary.BigEndian.AppendUint16(nil, from.Port())
	udp = binary.BigEndian.AppendUint16(udp, to.Port())
	length := uint16(udpHeader + len(m.Data)) //nolint:gosec // data is cut at maxMessage
	udp = binary.BigEndian.AppendUint16(udp, length)
	udp = append(udp, 0, 0) // the checksum is set below
	udp = append(udp, m.Data...)
	source, destination := sameFamily(from.Addr(), to.Addr())
	pseudo := append(bytes.Clone(source), destination...)
	pseudo = append(pseudo, 0, protocolUDP)
	pseudo = binary.BigEndian.AppendUint16(pseudo, length)
	sum := checksum(append(pseudo, udp...))
	if sum == 0 { // in UDP, the checksum 0 means that there is none (RFC 768)
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
	var header []byte
	if len(source) == net4 {
		header = []byte{0x45, 0}
		header = binary.BigEndian.AppendUint16(header, ipv4Header+length)
		header = append(header, 0, 0, 0, 0, hops, protocolUDP, 0, 0)
		header = append(append(header, source...), destination...)
		binary.BigEndian.PutUint16(header[10:], checksum(header))
	} else {
		header = []byte{0x60, 0, 0, 0}
		header = binary.BigEndian.AppendUint16(header, length)
		header = append(header, protocolUDP, hops)
		header = append(append(header, source...), destination...)
	}
	return append(header, udp...)
}

const net4 = 4

// sameFamily returns the bytes of two addresses, both as IPv4 or both as IPv6.
func sameFamily(one, other netip.Addr) (first, second []byte) {
	one, other = one.Unmap(), other.Unmap()
	if one.Is4() && other.Is4() {
		return one.AsSlice(), other.AsSlice()
	}
	a, b := addressBytes(one), addressBytes(other)
	return a[:], b[:]
}

// addressBytes returns the address in 16 bytes. For an invalid address it returns zeros.
func addressBytes(of netip.Addr) [16]byte {
	if !of.IsValid() {
		return [16]byte{}
	}
	return of.As16()
}

// checksum returns the Internet checksum (RFC 1071).
func checksum(data []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	if len(data)%2 == 1 {
		sum += uint32(data[len(data)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
