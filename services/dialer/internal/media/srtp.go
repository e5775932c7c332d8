package media

import (
	"errors"
	"fmt"

	"github.com/pion/rtp"
	"github.com/pion/srtp/v3"

	"ringfence.dev/services/dialer/internal/sdp"
)

// Overhead is the number of bytes that encryption adds to a packet.
const Overhead = 10

const (
	profile = srtp.ProtectionProfileAes128CmHmacSha1_80
	// replayWindow is the size of the replay window. A packet is refused if it is more than this
	// number of packets older than the newest packet. The window is longer than the wait of the jitter
	// buffer.
	replayWindow = 128
	// maxSources is the maximum number of authenticated sources of a stream. A call has one source.
	// Early media or a transfer can add another one.
	maxSources = 8
	// The first packet of an unknown source is decrypted in a separate probing context (see
	// authenticateSource). After maxProbes unknown sources, this context is replaced, to free its
	// memory.
	maxProbes = 64
)

// Reasons why a packet was not decrypted.
var (
	ErrForged   = errors.New("authentication failed")
	ErrReplayed = errors.New("replayed")
)

// Encrypter encrypts the packets of one stream with SRTP (RFC 3711). The cipher suite is
// AES_CM_128_HMAC_SHA1_80. Encrypter is not safe for concurrent use.
type Encrypter struct {
	key    sdp.Key
	stream *srtp.Context
	header rtp.Header
}

// NewEncrypter returns an encrypter with the key in this side's SDP.
func NewEncrypter(key sdp.Key) (*Encrypter, error) {
	stream, err := srtp.CreateContext(key.Master(), key.Salt(), profile)
	if err != nil {
		return nil, fmt.Errorf("make an SRTP context: %w", err)
	}
	return &Encrypter{key: key, stream: stream}, nil
}

// Uses reports whether the encrypter has this key.
func (o *Encrypter) Uses(key sdp.Key) bool { return o.key == key }

// Seal encrypts a packet in place. The slice must have a spare capacity of at least Overhead bytes.
func (o *Encrypter) Seal(packet []byte) ([]byte, error) {
	return o.stream.EncryptRTP(packet, packet, &o.header)
}

// Decrypter decrypts and authenticates packets, and refuses replayed packets. It stores state of a
// source only after an authentic packet. Decrypter is not safe for concurrent use.
type Decrypter struct {
	key     sdp.Key
	stream  *srtp.Context
	sources []uint32
	probe   *srtp.Context
	probes  int
	scratch []byte
	header  rtp.Header
}

// NewDecrypter returns a decrypter with the key in the far end's SDP.
func NewDecrypter(key sdp.Key) (*Decrypter, error) {
	in := &Decrypter{key: key, scratch: make([]byte, 0, 1500)}
	var err error
	if in.stream, err = in.context(); err != nil {
		return nil, err
	}
	return in, nil
}

// Uses reports whether the decrypter has this key.
func (in *Decrypter) Uses(key sdp.Key) bool { return in.key == key }

func (in *Decrypter) context() (*srtp.Context, error) {
	c, err := srtp.CreateContext(in.key.Master(), in.key.Salt(), profile, srtp.SRTPReplayProtection(replayWindow))
	if err != nil {
		return nil, fmt.Errorf("make an SRTP context: %w", err)
	}
	return c, nil
}

// Open decrypts a packet in place. The caller must have decoded the header of the packet.
func (in *Decrypter) Open(packet []byte, ssrc uint32) ([]byte, error) {
	if !in.knows(ssrc) {
		if err := in.authenticateSource(packet, ssrc); err != nil {
			return nil, err
		}
	}
	opened, err := in.stream.DecryptRTP(packet, packet, &in.header)
	if cap(in.header.Extensions) > 16 {
		in.header.Extensions = nil // release the memory of a packet with many extensions
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

// authenticateSource decrypts the first packet of a source in a separate context. A context stores
// state for every source, even for one that sends only forged packets.
func (in *Decrypter) authenticateSource(packet []byte, ssrc uint32) error {
	if len(in.sources) == maxSources {
		return ErrForged
	}
	if in.probe == nil || in.probes == maxProbes {
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
