// Package siptrace records the SIP messages of trunks for operators. It keeps the messages in
// memory, up to a limit and without secrets. It can write them as text and as a packet capture.
package siptrace

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Limits of what one process records of one trunk. The oldest messages are dropped first.
const (
	MaxMessages = 2000
	MaxBytes    = 1 << 20
	// maxMessage is the length to which a message is cut, in bytes, so that it fits into a UDP packet.
	maxMessage = 60_000
)

// Message is one SIP message as it was sent or received.
type Message struct {
	At time.Time `json:"at"`
	// Sent is true if this process sent the message.
	Sent bool `json:"sent"`
	// Transport is UDP, TCP or TLS.
	Transport string         `json:"transport"`
	Local     netip.AddrPort `json:"local"`
	Peer      netip.AddrPort `json:"peer"`
	// CallID is the Call-ID of the message.
	CallID string `json:"call_id"`
	// Data is the message without its secrets.
	Data []byte `json:"data"`
	// Replica is the host name of the process that recorded the message.
	Replica string `json:"replica"`
}

// Recorder records the messages of the trunks that were passed to Follow. The zero value records
// nothing. Recorder is safe for concurrent use.
type Recorder struct {
	// Replica is the host name of this process.
	Replica string

	on    atomic.Bool
	mu    sync.Mutex
	rings map[uuid.UUID]*messageRing
}

// Follow sets the trunks whose messages are recorded. It deletes the messages of all other trunks.
func (r *Recorder) Follow(trunks []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rings := map[uuid.UUID]*messageRing{}
	for _, id := range trunks {
		if rings[id] = r.rings[id]; rings[id] == nil {
			rings[id] = &messageRing{}
		}
	}
	r.rings = rings
	r.on.Store(len(rings) > 0)
}

// IsRecording reports whether any trunk is recorded. It returns false for a nil recorder.
func (r *Recorder) IsRecording() bool { return r != nil && r.on.Load() }

// Record records a message if its trunk was passed to Follow. It copies m.Data.
func (r *Recorder) Record(trunkID uuid.UUID, m Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.rings[trunkID]
	if of == nil {
		return
	}
	m.Data, m.Replica = Redact(m.Data[:min(len(m.Data), maxMessage)]), r.Replica
	of.add(m)
}

// Messages returns the recorded messages of a trunk, the oldest first. If callID is not empty, it
// returns only the messages with this Call-ID.
func (r *Recorder) Messages(trunkID uuid.UUID, callID string) []Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := []Message{}
	of := r.rings[trunkID]
	if of == nil {
		return found
	}
	for _, m := range of.messages {
		if callID == "" || m.CallID == callID {
			found = append(found, m)
		}
	}
	return found
}

// messageRing contains the newest messages of a trunk.
type messageRing struct {
	messages []Message
	bytes    int
}

func (r *messageRing) add(m Message) {
	r.messages = append(r.messages, m)
	r.bytes += len(m.Data)
	for len(r.messages) > MaxMessages || r.bytes > MaxBytes {
		r.bytes -= len(r.messages[0].Data)
		r.messages[0] = Message{}
		r.messages = r.messages[1:]
	}
}
