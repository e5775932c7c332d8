// Package sdp negotiates the audio of a call (RFC 4566, RFC 3264). It supports G.711 in packets of
// 20 ms, telephone-event (RFC 4733) and SDES keys (RFC 4568), and refuses every other stream. Only
// a Session has state. The package sends no messages. The SDP of the far end is untrusted input.
package sdp

import (
	"encoding/base64"
	"errors"
	"net/netip"
)

// Codec is one of the two G.711 codecs. The value is the static payload type (RFC 3551 table 4).
type Codec uint8

// Supported codecs.
const (
	PCMU Codec = 0
	PCMA Codec = 8
)

// String returns the codec's name in an rtpmap attribute.
func (c Codec) String() string {
	if c == PCMA {
		return "PCMA"
	}
	return "PCMU"
}

// Direction is the direction of audio from the local side's point of view.
type Direction string

// Directions of RFC 3264. The call is on hold with every direction except Both.
const (
	Both     Direction = "sendrecv"
	SendOnly Direction = "sendonly"
	RecvOnly Direction = "recvonly"
	Inactive Direction = "inactive"
)

// Sends reports whether the local side may send audio.
func (d Direction) Sends() bool { return d == Both || d == SendOnly }

// Receives reports whether the far end may send audio.
func (d Direction) Receives() bool { return d == Both || d == RecvOnly }

// reverse returns the direction from the other side's point of view.
func (d Direction) reverse() Direction {
	switch d {
	case SendOnly:
		return RecvOnly
	case RecvOnly:
		return SendOnly
	}
	return d
}

// Secrecy is the SRTP setting of a trunk.
type Secrecy string

// Off means plain RTP: a far end that requires SRTP is refused. Optional means that the offer is
// plain RTP (RTP/AVP) with a key, which far ends without SRTP ignore. Required means that only
// RTP/SAVP is accepted.
const (
	Off      Secrecy = "off"
	Optional Secrecy = "optional"
	Required Secrecy = "required"
)

// Key contains the master key and the master salt of AES_CM_128_HMAC_SHA1_80, together 30 bytes
// (RFC 4568 section 6.2). String and GoString never return its value.
type Key [30]byte

// Master returns the master key, 16 bytes.
func (k Key) Master() []byte { return k[:16] }

// Salt returns the master salt, 14 bytes.
func (k Key) Salt() []byte { return k[16:] }

// String returns a constant, so that logs do not contain the key.
func (k Key) String() string { return "[key]" }

// GoString returns a constant, so that %#v does not print the key.
func (k Key) GoString() string { return "[key]" }

func (k Key) inline() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Agreed is the result of a negotiation.
type Agreed struct {
	// Remote is the address to which audio is sent. It is invalid while the far end wants no audio,
	// for example while it holds the call with the address 0.0.0.0 (RFC 2543).
	Remote netip.AddrPort
	// Codecs contains the codecs that received packets can have. Sent packets have the first codec.
	Codecs []Codec
	// EventOut is the payload type of sent telephone-events. EventIn is the payload type of received
	// telephone-events. 0 means that telephone-events are not used. Some far ends wrongly send their
	// events with EventOut, so the receiver must accept both payload types.
	EventOut, EventIn uint8
	// Direction is the direction of audio from the local side's point of view.
	Direction Direction
	// Out encrypts sent packets and In decrypts received packets. Both are nil without SRTP.
	Out, In *Key
}

// Hold reports whether the local side or the far end holds the call.
func (a Agreed) Hold() bool { return a.Direction != Both }

// Reasons for refusing the SDP of a far end. All of them end the call with the cause
// incompatible_destination (488).
var (
	// ErrMalformed means that the text is not SDP or exceeds the limits.
	ErrMalformed = errors.New("malformed session description")
	// ErrNoAudio means that the SDP contains no audio over RTP, or that the far end refused the
	// audio with port 0.
	ErrNoAudio = errors.New("no audio stream")
	// ErrNoCodec means that the audio has neither PCMU nor PCMA.
	ErrNoCodec = errors.New("no codec in common")
	// ErrNoAddress means that the connection address is not a usable IP address.
	ErrNoAddress = errors.New("no usable media address")
	// ErrSecrecy means that one side requires SRTP and the other side does not accept it, or that the
	// offered key cannot be used.
	ErrSecrecy = errors.New("no agreement on SRTP")
)
