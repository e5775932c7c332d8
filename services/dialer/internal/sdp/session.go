package sdp

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	pion "github.com/pion/sdp/v3"
)

// eventType is the payload type of telephone-event in offers of this side.
const eventType = 101

// Local describes the local side of the audio.
type Local struct {
	// Address is the IP address in the SDP, to which the far end sends audio. It can differ from the
	// address of the socket.
	Address netip.Addr
	Port    uint16
	// Codecs contains the codecs in the order of the trunk's settings. If empty, they are PCMU and
	// PCMA.
	Codecs  []Codec
	Secrecy Secrecy
	// Key encrypts sent packets. It must be random for each call. If Secrecy is Off, Key is not used.
	Key Key
}

// Session is the local side of one dialog's audio: the session id, the version and the last SDP. It
// is not safe for concurrent use.
type Session struct {
	local   Local
	id      uint64
	version uint64
	lastSDP string // last SDP without its version
}

// NewSession starts the audio of a dialog. id must be unique among the sessions of this host (RFC
// 4566 section 5.2). The first version is 1.
func NewSession(id uint64, local Local) *Session {
	if len(local.Codecs) == 0 {
		local.Codecs = []Codec{PCMU, PCMA}
	}
	if local.Secrecy == "" {
		local.Secrecy = Off
	}
	// Some far ends read the id as a signed number, so its highest bit must be 0.
	return &Session{local: local, id: id >> 1}
}

// Offer returns the SDP offer for an INVITE, or for a re-INVITE that changes the direction. The
// version changes only if the SDP changes, as a session refresh requires.
func (s *Session) Offer(d Direction) ([]byte, error) {
	m := &pion.MediaDescription{MediaName: pion.MediaName{
		Media: "audio", Port: pion.RangedPort{Value: int(s.local.Port)}, Protos: []string{"RTP", "AVP"},
	}}
	if s.local.Secrecy == Required {
		m.MediaName.Protos[1] = "SAVP"
	}
	s.addFormats(m, s.local.Codecs, eventType)
	if s.local.Secrecy != Off {
		m.Attributes = append(m.Attributes, cryptoLine(1, s.local.Key))
	}
	m.Attributes = append(m.Attributes, pion.NewPropertyAttribute(string(d)))
	return s.marshal([]*pion.MediaDescription{m})
}

// ReadAnswer reads the SDP answer to the last Offer. offerDirection must be the direction of that
// offer.
func (s *Session) ReadAnswer(body []byte, offerDirection Direction) (Agreed, error) {
	t, err := splitLines(body)
	if err != nil {
		return Agreed{}, err
	}
	streams, err := t.decodeStreams()
	if err != nil {
		return Agreed{}, err
	}
	if len(streams) == 0 {
		return Agreed{}, ErrNoAudio
	}
	// The offer had one stream, so the answer has exactly one too (RFC 3264 section 6).
	a, err := streams[0].decodeAudio()
	if err != nil {
		return Agreed{}, err
	}
	agreed, err := s.commonValues(a)
	if err != nil {
		return Agreed{}, err
	}
	agreed.EventIn = 0
	if a.event != 0 {
		agreed.EventIn = eventType
	}
	agreed.Direction = commonDirection(offerDirection, a.direction.reverse())
	if (s.local.Secrecy == Required) != a.secure {
		return Agreed{}, fmt.Errorf("%w: the answer has another transport than the offer", ErrSecrecy)
	}
	switch i := slices.IndexFunc(a.crypto, func(k offeredKey) bool { return k.tag == 1 }); {
	case s.local.Secrecy == Off:
	case i >= 0:
		agreed.Out, agreed.In = &s.local.Key, &a.crypto[i].key
	case s.local.Secrecy == Required:
		return Agreed{}, fmt.Errorf("%w: the answer has no usable key for the offered key", ErrSecrecy)
	}
	return agreed, nil
}

// Answer returns the SDP answer to an offer, and the result of the negotiation. localDirection is
// Both unless the local side holds the call. Answer accepts one audio stream and refuses all
// others.
func (s *Session) Answer(offer []byte, localDirection Direction) (body []byte, agreed Agreed, err error) {
	t, err := splitLines(offer)
	if err != nil {
		return nil, Agreed{}, err
	}
	streams, err := t.decodeStreams()
	if err != nil {
		return nil, Agreed{}, err
	}
	taken, key := -1, offeredKey{}
	refusal := ErrNoAudio
	var a audioStream
	for i, candidate := range streams {
		if a, agreed, key, err = s.checkStream(candidate); err == nil {
			taken = i
			break
		}
		if err != ErrNoAudio { //nolint:errorlint // keep an earlier reason, because ErrNoAudio alone is less specific
			refusal = err
		}
	}
	if taken < 0 {
		return nil, Agreed{}, refusal
	}
	agreed.EventIn = a.event
	agreed.Direction = commonDirection(localDirection, a.direction.reverse())
	lines := make([]*pion.MediaDescription, 0, len(streams))
	for i, from := range streams {
		m := &pion.MediaDescription{MediaName: pion.MediaName{
			Media: from.media, Protos: strings.Split(from.proto, "/"), Formats: from.formats,
		}}
		if i == taken {
			m.MediaName.Port.Value, m.MediaName.Formats = int(s.local.Port), nil
			s.addFormats(m, agreed.Codecs, a.event)
			if agreed.Out != nil {
				m.Attributes = append(m.Attributes, cryptoLine(key.tag, s.local.Key))
			}
			m.Attributes = append(m.Attributes, pion.NewPropertyAttribute(string(agreed.Direction)))
		}
		lines = append(lines, m)
	}
	body, err = s.marshal(lines)
	return body, agreed, err
}

// checkStream checks whether an offered stream can be used. key is the far end's key that was
// chosen for the stream. key is the zero value without SRTP.
func (s *Session) checkStream(offered stream) (a audioStream, agreed Agreed, key offeredKey, err error) {
	if a, err = offered.decodeAudio(); err != nil {
		return a, agreed, key, err
	}
	if agreed, err = s.commonValues(a); err != nil {
		return a, agreed, key, err
	}
	switch {
	case s.local.Secrecy != Off && len(a.crypto) > 0:
		key = a.crypto[0]
		agreed.Out, agreed.In = &s.local.Key, &key.key
	case a.secure:
		return a, agreed, key, fmt.Errorf("%w: the offer requires SRTP and has no usable key", ErrSecrecy)
	case s.local.Secrecy == Required:
		return a, agreed, key, fmt.Errorf("%w: the offer has no key", ErrSecrecy)
	}
	return a, agreed, key, nil
}

// commonValues returns the values that offers and answers share: the address, the codecs in the far
// end's order, and the payload type of the far end's telephone-events.
func (s *Session) commonValues(a audioStream) (Agreed, error) {
	agreed := Agreed{Remote: a.address, EventOut: a.event}
	for _, c := range a.codecs {
		if slices.Contains(s.local.Codecs, c) {
			agreed.Codecs = append(agreed.Codecs, c)
		}
	}
	if len(agreed.Codecs) == 0 {
		return Agreed{}, ErrNoCodec
	}
	return agreed, nil
}

// commonDirection returns the direction in which audio may flow if both sides restrict it.
func commonDirection(a, b Direction) Direction {
	switch sends, receives := a.Sends() && b.Sends(), a.Receives() && b.Receives(); {
	case sends && receives:
		return Both
	case sends:
		return SendOnly
	case receives:
		return RecvOnly
	}
	return Inactive
}

// addFormats adds the formats of a stream and their attributes. If event is 0, it does not add
// telephone-event.
func (s *Session) addFormats(m *pion.MediaDescription, codecs []Codec, event uint8) {
	for _, c := range codecs {
		number := strconv.Itoa(int(c))
		m.MediaName.Formats = append(m.MediaName.Formats, number)
		m.Attributes = append(m.Attributes, pion.NewAttribute("rtpmap", number+" "+c.String()+"/8000"))
	}
	if event != 0 {
		number := strconv.Itoa(int(event))
		m.MediaName.Formats = append(m.MediaName.Formats, number)
		m.Attributes = append(
			m.Attributes,
			pion.NewAttribute("rtpmap", number+" telephone-event/8000"),
			pion.NewAttribute("fmtp", number+" 0-16"),
		)
	}
	m.Attributes = append(m.Attributes, pion.NewAttribute("ptime", "20"))
}

// marshal returns the SDP with the lines of the session and the streams. The version increases if
// the SDP differs from the previous SDP (RFC 3264 section 8).
func (s *Session) marshal(streams []*pion.MediaDescription) ([]byte, error) {
	kind := "IP4"
	if s.local.Address.Is6() && !s.local.Address.Is4In6() {
		kind = "IP6"
	}
	address := s.local.Address.Unmap().String()
	d := pion.SessionDescription{
		Origin: pion.Origin{
			Username:       "-",
			SessionID:      s.id,
			NetworkType:    "IN",
			AddressType:    kind,
			UnicastAddress: address,
		},
		SessionName: "-",
		ConnectionInformation: &pion.ConnectionInformation{
			NetworkType: "IN",
			AddressType: kind,
			Address:     &pion.Address{Address: address},
		},
		TimeDescriptions:  []pion.TimeDescription{{}},
		MediaDescriptions: streams,
	}
	description, err := d.Marshal()
	if err != nil {
		return nil, fmt.Errorf("write session description: %w", err)
	}
	if string(description) != s.lastSDP {
		s.lastSDP = string(description)
		s.version++
	}
	d.Origin.SessionVersion = s.version
	return d.Marshal()
}
