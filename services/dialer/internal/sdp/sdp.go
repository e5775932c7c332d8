// Package sdp knows how two sides of a call agree on its audio (RFC 4566, RFC 3264): what we offer, what an answer or an offer of the
// far end means for us, and what we answer. G.711 at 20 ms, telephone-event (RFC 4733) and SDES keys (RFC 4568); every other stream
// is refused. Pure: keys and ids are arguments, and nothing is sent. What the far end wrote is hostile until it was read here.
package sdp

import (
	"encoding/base64"
	"errors"
	"net/netip"
)

// Codec is a G.711 law, by its static payload type (RFC 3551 table 4).
type Codec uint8

// The two codecs of the house.
const (
	PCMU Codec = 0
	PCMA Codec = 8
)

// String is the name in rtpmap.
func (c Codec) String() string {
	if c == PCMA {
		return "PCMA"
	}
	return "PCMU"
}

// Direction says which way audio may go, from our side.
type Direction string

// The four directions of RFC 3264. Anything but Both is a hold.
const (
	Both     Direction = "sendrecv"
	SendOnly Direction = "sendonly"
	RecvOnly Direction = "recvonly"
	Inactive Direction = "inactive"
)

// Sends says whether we may send.
func (d Direction) Sends() bool { return d == Both || d == SendOnly }

// Receives says whether the far end may send.
func (d Direction) Receives() bool { return d == Both || d == RecvOnly }

// mirrored is what a side's direction means for the other side.
func (d Direction) mirrored() Direction {
	switch d {
	case SendOnly:
		return RecvOnly
	case RecvOnly:
		return SendOnly
	}
	return d
}

// Secrecy is what a trunk says about SRTP.
type Secrecy string

// Off: plain RTP, and a far end that insists on SRTP is refused. Optional: RTP/AVP with a key beside it, which old far ends pass over;
// what the far end takes decides. Required: RTP/SAVP, and nothing else.
const (
	Off      Secrecy = "off"
	Optional Secrecy = "optional"
	Required Secrecy = "required"
)

// Key is the master key and salt of AES_CM_128_HMAC_SHA1_80, 30 bytes (RFC 4568 6.2). It never prints itself.
type Key [30]byte

// Master is the key, 16 bytes.
func (k Key) Master() []byte { return k[:16] }

// Salt is the salt, 14 bytes.
func (k Key) Salt() []byte { return k[16:] }

// String hides the key from logs.
func (k Key) String() string { return "[key]" }

// GoString hides the key from %#v.
func (k Key) GoString() string { return "[key]" }

func (k Key) inline() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Agreed is what both sides said, as it binds us.
type Agreed struct {
	// Remote is where the far end wants its audio; invalid while it wants none (a hold by 0.0.0.0, RFC 2543).
	Remote netip.AddrPort
	// Codecs may all arrive; the first is the one to send.
	Codecs []Codec
	// EventOut is the payload type of a telephone-event to the far end, EventIn of one from it; 0: there are none. EventIn may
	// also come under EventOut, as some far ends have it.
	EventOut, EventIn uint8
	// Direction is ours.
	Direction Direction
	// Out encrypts what we send, In decrypts what comes. Both or neither is set.
	Out, In *Key
}

// Hold says whether the far end has put us on hold, or we it.
func (a Agreed) Hold() bool { return a.Direction != Both }

// Why a description cannot be agreed to. All of them end a call with incompatible_destination (488), ErrMalformed included.
var (
	// ErrMalformed: it is no SDP, or beyond what a phone call needs.
	ErrMalformed = errors.New("malformed session description")
	// ErrNoAudio: there is no audio over RTP in it, or it was refused with port 0.
	ErrNoAudio = errors.New("no audio stream")
	// ErrNoCodec: audio, but neither PCMU nor PCMA that both sides take.
	ErrNoCodec = errors.New("no codec in common")
	// ErrNoAddress: the connection address is no IP address to send to.
	ErrNoAddress = errors.New("no usable media address")
	// ErrSecrecy: SRTP is required by one side and not taken by the other, or its key cannot be used.
	ErrSecrecy = errors.New("no agreement on SRTP")
)
