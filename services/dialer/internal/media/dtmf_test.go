package media

import (
	"encoding/binary"
	"testing"
	"time"
)

type digitPacket struct {
	at, timestamp int
	event         byte
	duration      uint16
	end, marker   bool
}

func hear(h *DTMFReceiver, packets ...digitPacket) (heard string) {
	for _, p := range packets {
		payload := []byte{p.event, 10, 0, 0}
		if p.end {
			payload[1] |= 0x80
		}
		binary.BigEndian.PutUint16(payload[2:], p.duration)
		if digit, begins := h.Hear(payload, uint32(p.timestamp), p.marker, time.Duration(p.at)*time.Millisecond); begins {
			heard += string(digit)
		}
	}
	return heard
}

func TestDTMFReceiver_DetectsEachDigitOnce(t *testing.T) {
	pressed := func(at, timestamp int, event byte) []digitPacket {
		return []digitPacket{
			{
				at,
				timestamp,
				event,
				160,
				false,
				true,
			}, {at + 20, timestamp, event, 320, false, false}, {at + 40, timestamp, event, 480, true, false},
			{at + 60, timestamp, event, 480, true, false}, {at + 80, timestamp, event, 480, true, false},
		}
	}
	first, second := pressed(0, 1000, 5), pressed(300, 3400, 5)
	long := func(step int, marker bool) (all []digitPacket) {
		for i := range 10 {
			all = append(all, digitPacket{i * 20, 1000 + i*step, 11, uint16(160 * (i + 1)), false, marker && i == 0})
		}
		return all
	}
	for _, row := range []struct {
		name    string
		packets []digitPacket
		want    string
	}{
		{"three end packets: one digit", first, "5"},
		{"same key pressed twice", append(first, second...), "55"},
		{"first packet lost", first[1:], "5"},
		{"only an end packet arrives", first[4:], "5"},
		{"end packets lost, next digit has a marker", append(first[:2:2], second...), "55"},
		{
			"end packets lost, next digit follows immediately with a marker",
			append(first[:2:2], digitPacket{60, 1480, 5, 160, false, true}), "55",
		},
		{"end packets and marker of the next digit lost", append(first[:2:2], second[1:]...), "55"},
		{
			"another key without an end packet before it", append(first[:2:2], digitPacket{30, 1100, 6, 160, false, false}),
			"56",
		},
		{"end packet arrives after the next digit", append(append([]digitPacket{}, second...), first[4]), "5"},
		{"timestamp changes with each packet", long(160, true), "#"},
		{
			"second segment of a very long key press",
			append(long(0, true), digitPacket{200, 1000 + 65535, 11, 160, false, false}), "#",
		},
		{"hook flash is not a digit", pressed(0, 0, 16), ""},
		{
			"digits *, D, 0 and 9",
			append(append(append(
				pressed(0, 0, 10), pressed(300, 9000, 15)...), pressed(600, 20000, 0)...), pressed(900, 30000, 9)...),
			"*D09",
		},
	} {
		if got := hear(new(DTMFReceiver), row.packets...); got != row.want {
			t.Errorf("%s: heard %q, want %q", row.name, got, row.want)
		}
	}
}

func TestDTMFReceiver_DetectsDigitsAcrossATimestampWrap(t *testing.T) {
	h := new(DTMFReceiver)
	if got := hear(h, digitPacket{0, -100, 1, 160, true, true}, digitPacket{300, 2000, 1, 160, true, true}); got != "11" {
		t.Errorf("heard %q over the timestamps' wrap, want 11", got)
	}
}

func TestDTMFSender_SendsQueuedDigits(t *testing.T) {
	s, h := new(DTMFSender), new(DTMFReceiver)
	switch {
	case s.Send("12x"):
		t.Fatal(`s.Send("12x") = true, want false`)
	case !s.Send("1#"):
		t.Fatal(`s.Send("1#") = false, want true`)
	case !s.Send("1"):
		t.Fatal(`s.Send("1") = false, want true`)
	}
	var heard string
	var ended, muted, markers int
	var began []uint32
	for i := range 100 {
		now := uint32(7000 + i*frameSamples)
		p, event, quiet := s.Next(now)
		if quiet {
			muted++
		}
		if !event {
			continue
		}
		if p.Marker {
			markers++
			began = append(began, p.Timestamp)
			if p.Timestamp != now {
				t.Errorf("an event begins at %d, want %d", p.Timestamp, now)
			}
		}
		if p.Timestamp != began[len(began)-1] {
			t.Errorf("the timestamp moved to %d within an event", p.Timestamp)
		}
		duration := binary.BigEndian.Uint16(p.Payload[2:])
		if p.Payload[1]&0x80 != 0 {
			ended++
			if duration != digitFrames*frameSamples {
				t.Errorf("ends with %d, want %d", duration, digitFrames*frameSamples)
			}
		} else if want := now - p.Timestamp + frameSamples; uint32(duration) != want {
			t.Errorf("duration %d, want %d", duration, want)
		}
		if digit, begins := h.Hear(p.Payload[:], p.Timestamp, p.Marker, time.Duration(i)*20*time.Millisecond); begins {
			heard += string(digit)
		}
	}
	switch {
	case heard != "1#1":
		t.Errorf(`heard = %v, want "1#1"`, heard)
	case ended != 9:
		t.Errorf("ended = %v, want 9", ended)
	case markers != 3:
		t.Errorf("markers = %v, want 3", markers)
	case muted != 15:
		t.Errorf("muted = %v, want 15", muted)
	}
}

func FuzzDTMFReceiverHear(f *testing.F) {
	f.Add([]byte{5, 0x8A, 1, 64}, uint32(1000), true, int64(20))
	f.Fuzz(func(t *testing.T, payload []byte, timestamp uint32, marker bool, ms int64) {
		h := new(DTMFReceiver)
		for i := range 3 {
			digit, begins := h.Hear(payload, timestamp, marker, time.Duration(ms)+time.Duration(i))
			if begins && i > 0 {
				t.Error("the same packet was detected twice")
			}
			if begins && !ValidDigits(string(digit)) {
				t.Errorf("heard %q", digit)
			}
		}
	})
}
