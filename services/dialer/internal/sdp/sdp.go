// Package sdp negotiates the audio of a call (RFC 4566, RFC 3264): it writes offers and answers,
// and reads the far end's offers and answers. It supports G.711 with 20 ms, telephone-event (RFC
// 4733) and SDES keys (RFC 4568), and refuses every other stream. The only state is in a Session:
// keys and ids are arguments, and the package sends no messages. The far end's description is
// untrusted input.
package sdp

import (
	"encoding/base64"
	"errors"
	"net/netip"
)

// Codec is one of the two G.711 codecs. The value is the static payload type (RFC 3551 table 4).
type Codec uint8

// The supported codecs.
const (
	PCMU Codec = 0
	PCMA Codec = 8
)

// String returns the codec's name in rtpmap.
func (c Codec) String() string {
	if c == PCMA {
		return "PCMA"
	}
	return "PCMU"
}

// Direction is the direction of audio, from the local side.
type Direction string

// The directions of RFC 3264. Every direction except Both is a hold.
const (
	Both     Direction = "sendrecv"
	SendOnly Direction = "sendonly"
	RecvOnly Direction = "recvonly"
	Inactive Direction = "inactive"
)

// Sends reports whether the local side may send.
func (d Direction) Sends() bool { return d == Both || d == SendOnly }

// Receives reports whether the far end may send.
func (d Direction) Receives() bool { return d == Both || d == RecvOnly }

// mirrored returns the direction as the other side sees it.
func (d Direction) mirrored() Direction {
	switch d {
	case SendOnly:
		return RecvOnly
	case RecvOnly:
		return SendOnly
	}
	return d
}

// Secrecy is a trunk's setting for SRTP.
type Secrecy string

// Off: plain RTP is used, and a far end that requires SRTP is refused. Optional: the offer is
// RTP/AVP with a key. Old far ends ignore the key, so the far end decides. Required: only RTP/SAVP
// is accepted.
const (
	Off      Secrecy = "off"
	Optional Secrecy = "optional"
	Required Secrecy = "required"
)

// Key is the master key and salt of AES_CM_128_HMAC_SHA1_80, 30 bytes (RFC 4568 section 6.2). Its
// String methods never return the value.
type Key [30]byte

// Master returns the master key, 16 bytes.
func (k Key) Master() []byte { return k[:16] }

// Salt returns the master salt, 14 bytes.
func (k Key) Salt() []byte { return k[16:] }

// String hides the key from logs.
func (k Key) String() string { return "[key]" }

// GoString hides the key from %#v.
func (k Key) GoString() string { return "[key]" }

func (k Key) inline() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Agreed is the result of a negotiation.
type Agreed struct {
	// Remote is the address to which audio is sent. It is invalid while the far end wants no audio
	// (a hold with 0.0.0.0, RFC 2543).
	Remote netip.AddrPort
	// Codecs are the codecs of packets that can arrive. The first codec is used to send.
	Codecs []Codec
	// EventOut is the payload type of sent telephone-events, and EventIn the payload type of
	// received telephone-events. 0 means none. Some far ends send events with EventOut.
	EventOut, EventIn uint8
	// Direction is the direction of audio from the local side.
	Direction Direction
	// Out encrypts sent packets, and In decrypts received packets. Either both are set or neither
	// is.
	Out, In *Key
}

// Hold reports whether either side holds the call.
func (a Agreed) Hold() bool { return a.Direction != Both }

// Reasons why a description is refused. All of them end the call with incompatible_destination
// (488).
var (
	// ErrMalformed means that the text is not SDP, or exceeds the limits.
	ErrMalformed = errors.New("malformed session description")
	// ErrNoAudio means that the description contains no audio over RTP, or that the audio was
	// refused with port 0.
	ErrNoAudio = errors.New("no audio stream")
	// ErrNoCodec means that the audio has neither PCMU nor PCMA.
	ErrNoCodec = errors.New("no codec in common")
	// ErrNoAddress means that the connection address is not a usable IP address.
	ErrNoAddress = errors.New("no usable media address")
	// ErrSecrecy means that one side requires SRTP and the other side does not accept it, or that
	// the key cannot be used.
	ErrSecrecy = errors.New("no agreement on SRTP")
)
