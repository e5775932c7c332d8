package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// PhonesCommand is the argument with which this program runs as the phones of persons who talk to
// an agent.
const PhonesCommand = "phones"

const (
	frameBytes = 160
	frameTime  = 20 * time.Millisecond
	headerSize = 12
	// A phone sends silence, except that every 25th frame (twice a second) is a mark: a frame that
	// contains its send time. The model sends the mark back, and the phone measures the round-trip
	// time.
	markEach = 25
	// settlingTime begins when a phone receives its first packet. The marks that the phone sends in
	// this time are not counted, because the agent still speaks the greeting.
	settlingTime = 5 * time.Second
	// endingTime is the time before the end of a call. The marks that a phone sends in this time are
	// not counted, because they can come back too late.
	endingTime = 4 * time.Second
	silence    = 0xFF
)

// mark contains the first bytes of each mark. The send time follows, in ns of the phones' clock.
var mark = []byte("RINGMARK")

type phoneReport struct {
	// First is the time when each phone received the first sound, in ns since 1970, or 0.
	First []int64 `json:"first"`
	// Trips contains the round-trip times of marks from the phone to the agent and back, in µs. Marks
	// is the number of sent marks, without the marks in settlingTime and endingTime.
	Trips []int64 `json:"trips"`
	Marks int     `json:"marks"`
	// Heard is the number of received packets. Lost is the number of missing packets between the
	// first and the last received packet.
	Heard, Lost int
}

// Phones opens the given number of phones and prints their addresses in one line. Each phone sends
// audio from its first received packet on. When the input ends, Phones prints a phoneReport as
// JSON.
func Phones(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: %s <phones>", PhonesCommand)
	}
	count, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("read the number of phones: %w", err)
	}
	all, addresses := make([]*phone, count), make([]string, count)
	begun := time.Now()
	for i := range all {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return fmt.Errorf("open a phone: %w", err)
		}
		all[i], addresses[i] = &phone{conn: conn, now: func() time.Duration { return time.Since(begun) }}, conn.LocalAddr().String()
		go all[i].listen()
	}
	fmt.Println(strings.Join(addresses, ","))
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	var sum phoneReport
	for _, p := range all {
		p.mu.Lock()
		sum.First = append(sum.First, p.first)
		for _, one := range p.trips {
			if one.sent < p.heardAt-endingTime {
				sum.Trips = append(sum.Trips, one.took.Microseconds())
			}
		}
		for _, sent := range p.marks {
			if sent < p.heardAt-endingTime {
				sum.Marks++
			}
		}
		sum.Heard, sum.Lost = sum.Heard+p.heard, sum.Lost+max(0, int(p.last-p.lowest)+1-p.heard)
		p.mu.Unlock()
	}
	return json.NewEncoder(os.Stdout).Encode(sum)
}

type trip struct{ sent, took time.Duration }

type phone struct {
	conn *net.UDPConn
	now  func() time.Duration

	mu           sync.Mutex
	first        int64
	trips        []trip
	marks        []time.Duration
	heardAt      time.Duration
	heard        int
	lowest, last int64 // the lowest and the last sequence number, extended beyond 16 bits
}

func (p *phone) listen() {
	packet := make([]byte, 1500)
	for {
		n, from, err := p.conn.ReadFromUDPAddrPort(packet)
		if err != nil {
			return
		}
		if n != headerSize+frameBytes {
			continue
		}
		p.mu.Lock()
		if p.heard == 0 {
			go p.speak(from)
		}
		p.hear(int64(binary.BigEndian.Uint16(packet[2:])), packet[headerSize:n])
		p.mu.Unlock()
	}
}

func (p *phone) hear(number int64, payload []byte) {
	if p.heard++; p.heard == 1 {
		p.lowest, p.last = number, number
	}
	p.heardAt = p.now()
	p.last += int64(int16(uint16(number) - uint16(p.last))) // #nosec G115 -- the overflow is intended
	if bytes.HasPrefix(payload, mark) {
		// #nosec G115 -- this program has written the value
		sent := time.Duration(binary.BigEndian.Uint64(payload[len(mark):]))
		if sent >= 0 {
			p.trips = append(p.trips, trip{sent, p.now() - sent})
		}
	} else if p.first == 0 && bytes.Count(payload, []byte{silence}) < frameBytes/2 {
		p.first = time.Now().UnixNano()
	}
}

// speak sends a frame every 20 ms, starting at a random offset.
func (p *phone) speak(to netip.AddrPort) {
	time.Sleep(rand.N(frameTime))
	begun, tick := p.now(), time.NewTicker(frameTime)
	defer tick.Stop()
	packet := make([]byte, headerSize+frameBytes)
	packet[0] = 2 << 6
	binary.BigEndian.PutUint32(packet[8:], rand.Uint32())
	for n := rand.IntN(markEach); ; n++ {
		payload := packet[headerSize:]
		for i := range payload {
			payload[i] = silence
		}
		if n%markEach == 0 {
			sent := p.now()
			if sent-begun < settlingTime {
				sent = -1
			} else {
				p.mu.Lock()
				p.marks = append(p.marks, sent)
				p.mu.Unlock()
			}
			for i := range payload {
				payload[i] = 0x10 // 0x10 is a loud sample
			}
			// #nosec G115 -- the receiver converts the value back
			binary.BigEndian.PutUint64(payload[copy(payload, mark):], uint64(sent))
		}
		binary.BigEndian.PutUint16(packet[2:], uint16(n))            // #nosec G115 -- wraps around
		binary.BigEndian.PutUint32(packet[4:], uint32(n)*frameBytes) // #nosec G115 -- wraps around
		if _, err := p.conn.WriteToUDPAddrPort(packet, to); err != nil {
			return
		}
		<-tick.C
	}
}
