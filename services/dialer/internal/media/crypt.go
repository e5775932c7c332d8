// Package crypt encrypts what a stream sends and opens what it gets: SRTP with AES_CM_128_HMAC_SHA1_80 (RFC 3711), with a replay window. It keeps
// no state for a source that has not proved to hold the key.

package media

import (
	"errors"
	"fmt"

	"github.com/pion/rtp"
	"github.com/pion/srtp/v3"

	"ringfence.dev/services/dialer/internal/sdp"
)

// Overhead is what encryption adds to a packet, in bytes.
const Overhead = 10

const (
	profile = srtp.ProtectionProfileAes128CmHmacSha1_80
	// window is how far behind the newest a packet may be, in packets: more than the jitter buffer waits for.
	window = 128
	// mostSources of one stream that proved themselves; a call has one, and another for early media or a transfer.
	mostSources = 8
	// mostProbes is how many unknown sources one probing context sees before it is thrown away with its memory.
	mostProbes = 64
)

// Why a packet was not opened.
var (
	ErrForged   = errors.New("authentication failed")
	ErrReplayed = errors.New("replayed")
)

// Encrypter encrypts. Not safe for use by several goroutines.
type Encrypter struct {
	key    sdp.Key
	stream *srtp.Context
	header rtp.Header
}

// NewEncrypter takes the key that our description names.
func NewEncrypter(key sdp.Key) (*Encrypter, error) {
	stream, err := srtp.CreateContext(key.Master(), key.Salt(), profile)
	if err != nil {
		return nil, fmt.Errorf("make an SRTP context: %w", err)
	}
	return &Encrypter{key: key, stream: stream}, nil
}

// Uses says whether it is this key that encrypts.
func (o *Encrypter) Uses(key sdp.Key) bool { return o.key == key }

// Seal encrypts a packet in place. Its slice has room for Overhead bytes more.
func (o *Encrypter) Seal(packet []byte) ([]byte, error) {
	return o.stream.EncryptRTP(packet, packet, &o.header)
}

// Decrypter opens. Not safe for use by several goroutines.
type Decrypter struct {
	key     sdp.Key
	stream  *srtp.Context
	sources []uint32
	probe   *srtp.Context
	probes  int
	scratch []byte
	header  rtp.Header
}

// NewDecrypter takes the key that the far end's description names.
func NewDecrypter(key sdp.Key) (*Decrypter, error) {
	in := &Decrypter{key: key, scratch: make([]byte, 0, 1500)}
	var err error
	if in.stream, err = in.context(); err != nil {
		return nil, err
	}
	return in, nil
}

// Uses says whether it is this key that opens.
func (in *Decrypter) Uses(key sdp.Key) bool { return in.key == key }

func (in *Decrypter) context() (*srtp.Context, error) {
	c, err := srtp.CreateContext(in.key.Master(), in.key.Salt(), profile, srtp.SRTPReplayProtection(window))
	if err != nil {
		return nil, fmt.Errorf("make an SRTP context: %w", err)
	}
	return c, nil
}

// Open decrypts a packet in place; its header was read before.
func (in *Decrypter) Open(packet []byte, ssrc uint32) ([]byte, error) {
	if !in.knows(ssrc) {
		if err := in.prove(packet, ssrc); err != nil {
			return nil, err
		}
	}
	opened, err := in.stream.DecryptRTP(packet, packet, &in.header)
	if cap(in.header.Extensions) > 16 {
		in.header.Extensions = nil // what one packet needed is not kept
	}
	switch {
	case err == nil:
		return opened, nil
	case errors.Is(err, srtp.ErrFailedToVerifyAuthTag):
		return nil, ErrForged
	}
	return nil, ErrReplayed
}

func (in *Decrypter) knows(ssrc uint32) bool {
	for _, known := range in.sources {
		if known == ssrc {
			return true
		}
	}
	return false
}

// prove opens the first packet of a source in a context of its own: a context remembers each source that it hears of, forged or not.
func (in *Decrypter) prove(packet []byte, ssrc uint32) error {
	if len(in.sources) == mostSources {
		return ErrForged
	}
	if in.probe == nil || in.probes == mostProbes {
		var err error
		if in.probe, err = in.context(); err != nil {
			return err
		}
		in.probes = 0
	}
	in.probes++
	if _, err := in.probe.DecryptRTP(in.scratch[:0], packet, &in.header); err != nil {
		return ErrForged
	}
	in.sources = append(in.sources, ssrc)
	in.probe = nil
	return nil
}
