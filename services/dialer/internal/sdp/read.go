package sdp

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	pion "github.com/pion/sdp/v3"
)

// Limits for the SDP of a far end. The SDP of a real phone call uses a tenth of them.
const (
	maxBytes    = 16 << 10
	maxLines    = 512
	mostStreams = 16
	mostFormats = 64
)

// sdpLines is an SDP text that is split into lines. The lines are not validated.
type sdpLines struct {
	session []string   // c= and a= lines of the session
	streams [][]string // one element per m= line: the m= line, then the c= and a= lines that belong to it
}

// splitLines returns the c=, m= and a= lines of an SDP text. It ignores all other lines, because
// far ends write them in different orders and spellings.
func splitLines(body []byte) (t sdpLines, err error) {
	if len(body) > maxBytes {
		return t, fmt.Errorf("%w: %d bytes", ErrMalformed, len(body))
	}
	lines := strings.FieldsFunc(string(body), func(r rune) bool { return r == '\r' || r == '\n' })
	if len(lines) == 0 || len(lines) > maxLines || lines[0] != "v=0" {
		return t, fmt.Errorf("%w: %d lines, or the first line is not v=0", ErrMalformed, len(lines))
	}
	for _, line := range lines[1:] {
		if len(line) < 2 || line[1] != '=' {
			return t, fmt.Errorf("%w: a line does not begin with a letter and \"=\"", ErrMalformed)
		}
		switch last := len(t.streams) - 1; {
		case line[0] == 'm':
			if len(t.streams) == mostStreams {
				return t, fmt.Errorf("%w: more than %d streams", ErrMalformed, mostStreams)
			}
			t.streams = append(t.streams, []string{line})
		case line[0] != 'c' && line[0] != 'a':
		case last < 0:
			t.session = append(t.session, line)
		default:
			t.streams[last] = append(t.streams[last], line)
		}
	}
	return t, nil
}

type stream struct {
	media, proto string
	port         int
	formats      []string
	// parsed is nil if the stream is not audio over RTP. Such a stream is always refused.
	parsed *pion.SessionDescription
}

// decodeStreams decodes each m= line together with the lines of the session. The result is in the
// order of the m= lines.
func (t sdpLines) decodeStreams() ([]stream, error) {
	var all []stream
	for _, lines := range t.streams {
		fields := strings.Fields(lines[0][2:])
		if len(fields) < 4 || len(fields) > 3+mostFormats {
			return nil, fmt.Errorf("%w: an m= line has %d fields", ErrMalformed, len(fields))
		}
		number, _, _ := strings.Cut(fields[1], "/")
		port, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%w: an m= line has an invalid port", ErrMalformed)
		}
		s := stream{media: fields[0], port: int(port), proto: fields[2], formats: fields[3:]}
		if s.media == "audio" && (s.proto == plainRTP || s.proto == secureRTP) {
			clean := []string{"v=0", "o=- 0 0 IN IP4 0.0.0.0", "s=-"}
			connection := slices.IndexFunc(t.session, func(line string) bool { return line[0] == 'c' })
			if connection >= 0 {
				clean = append(clean, t.session[connection])
			}
			clean = append(clean, "t=0 0")
			for _, line := range t.session {
				if line[0] == 'a' {
					clean = append(clean, line)
				}
			}
			s.parsed = new(pion.SessionDescription)
			if err := s.parsed.UnmarshalString(strings.Join(append(clean, lines...), "\r\n") + "\r\n"); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// Transports of RTP (RFC 3551, RFC 3711).
const (
	plainRTP  = "RTP/AVP"
	secureRTP = "RTP/SAVP"
)

// audioStream is a usable audio stream in the SDP of the far end.
type audioStream struct {
	address   netip.AddrPort // invalid if the far end wants no audio
	codecs    []Codec        // supported codecs in the far end's order
	event     uint8
	direction Direction // from the far end's point of view
	secure    bool      // true if the transport is RTP/SAVP
	crypto    []offeredKey
}

func (s stream) decodeAudio() (a audioStream, err error) {
	if s.parsed == nil || s.port == 0 {
		return a, ErrNoAudio
	}
	media := s.parsed.MediaDescriptions[0]
	a.secure = s.proto == secureRTP
	a.direction = streamDirection(s.parsed.Attributes, media.Attributes)
	connection := media.ConnectionInformation
	if connection == nil {
		connection = s.parsed.ConnectionInformation
	}
	if connection == nil || connection.Address == nil {
		return a, fmt.Errorf("%w: no c= line", ErrNoAddress)
	}
	where, _, _ := strings.Cut(connection.Address.Address, "/")
	ip, err := netip.ParseAddr(where)
	if err != nil || ip.Zone() != "" || ip.IsMulticast() {
		return a, fmt.Errorf("%w: the address is not a unicast IP address", ErrNoAddress)
	}
	if ip = ip.Unmap(); ip.IsUnspecified() {
		a.direction = holdDirection(a.direction)
	} else {
		a.address = netip.AddrPortFrom(ip, uint16(s.port))
	}
	maps := rtpMappings(media.Attributes)
	for _, format := range s.formats {
		number, err := strconv.ParseUint(format, 10, 7)
		if err != nil {
			continue
		}
		name, mapped := maps[format]
		switch codec := Codec(number); {
		case (codec == PCMU || codec == PCMA) && (!mapped || name == strings.ToLower(codec.String())+"/8000"):
			if !slices.Contains(a.codecs, codec) {
				a.codecs = append(a.codecs, codec)
			}
		// Only a dynamic payload type is valid for telephone-event (RFC 3551 section 3).
		case number >= 96 && name == "telephone-event/8000" && a.event == 0:
			a.event = uint8(number)
		}
	}
	a.crypto = supportedKeys(media.Attributes)
	return a, nil
}

// holdDirection returns the direction for a far end whose media address is 0.0.0.0. This address
// holds a call (RFC 2543). No audio is sent to such a far end, even if its direction attribute
// requests audio.
func holdDirection(declared Direction) Direction {
	if declared.Sends() {
		return SendOnly
	}
	return Inactive
}

// streamDirection returns the direction attribute of the stream or, if the stream has none, of the
// session. The default is sendrecv (RFC 4566 section 6).
func streamDirection(session, media []pion.Attribute) Direction {
	for _, level := range [][]pion.Attribute{media, session} {
		for _, a := range slices.Backward(level) {
			switch d := Direction(a.Key); d {
			case Both, SendOnly, RecvOnly, Inactive:
				return d
			}
		}
	}
	return Both
}

// rtpMappings returns the rtpmap attributes of a stream by payload type. A value is the encoding
// and the clock rate in lower case, without the suffix "/1" for one channel.
func rtpMappings(attributes []pion.Attribute) map[string]string {
	maps := map[string]string{}
	for _, a := range attributes {
		if number, name, ok := strings.Cut(a.Value, " "); ok && a.Key == "rtpmap" {
			maps[number] = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(name)), "/1")
		}
	}
	return maps
}
