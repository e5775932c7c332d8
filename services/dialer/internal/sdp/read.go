package sdp

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	pion "github.com/pion/sdp/v3"
)

// The most that is read. A call between two phones takes a tenth of it.
const (
	mostBytes   = 16 << 10
	mostLines   = 512
	mostStreams = 16
	mostFormats = 64
)

// text is a description cut into its parts, before anything in it is believed.
type text struct {
	session []string   // c= and a= of the session
	streams [][]string // per m-line: the m-line, then its c= and a=
}

// cut takes a description apart. Only c=, m= and a= matter to us; the other lines, which far ends write in every order and spelling, are passed over.
func cut(body []byte) (t text, err error) {
	if len(body) > mostBytes {
		return t, fmt.Errorf("%w: %d bytes", ErrMalformed, len(body))
	}
	lines := strings.FieldsFunc(string(body), func(r rune) bool { return r == '\r' || r == '\n' })
	if len(lines) == 0 || len(lines) > mostLines || lines[0] != "v=0" {
		return t, fmt.Errorf("%w: %d lines, or not version 0", ErrMalformed, len(lines))
	}
	for _, line := range lines[1:] {
		if len(line) < 2 || line[1] != '=' {
			return t, fmt.Errorf("%w: a line that is none", ErrMalformed)
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

// stream is one m-line, read.
type stream struct {
	media, proto string
	port         int
	formats      []string
	// parsed is nil for a stream that is not audio over RTP: it is only ever refused.
	parsed *pion.SessionDescription
}

// streams reads the m-lines in order, each with the session's lines before its own.
func (t text) read() ([]stream, error) {
	var all []stream
	for _, lines := range t.streams {
		fields := strings.Fields(lines[0][2:])
		if len(fields) < 4 || len(fields) > 3+mostFormats {
			return nil, fmt.Errorf("%w: an m-line of %d fields", ErrMalformed, len(fields))
		}
		number, _, _ := strings.Cut(fields[1], "/")
		port, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%w: an m-line's port", ErrMalformed)
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

// audio is a stream that we could talk over, as the far end describes it.
type audio struct {
	address   netip.AddrPort // invalid: it wants no audio
	codecs    []Codec        // in the far end's order, those that we know
	event     uint8
	direction Direction // the far end's
	secure    bool      // RTP/SAVP
	crypto    []offeredKey
}

// audio reads what matters of an audio stream.
func (s stream) audio() (a audio, err error) {
	if s.parsed == nil || s.port == 0 {
		return a, ErrNoAudio
	}
	media := s.parsed.MediaDescriptions[0]
	a.secure = s.proto == secureRTP
	a.direction = direction(s.parsed.Attributes, media.Attributes)
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
		return a, fmt.Errorf("%w: it is no unicast IP address", ErrNoAddress)
	}
	if ip = ip.Unmap(); ip.IsUnspecified() {
		a.direction = heldAt0(a.direction)
	} else {
		a.address = netip.AddrPortFrom(ip, uint16(s.port))
	}
	maps := mappings(media.Attributes)
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
		case number >= 96 && name == "telephone-event/8000" && a.event == 0: // dynamic types only (RFC 3551 3)
			a.event = uint8(number)
		}
	}
	a.crypto = keys(media.Attributes)
	return a, nil
}

// heldAt0 is the direction of a far end that names 0.0.0.0, the hold of RFC 2543: it takes no audio, whatever else it says.
func heldAt0(said Direction) Direction {
	if said.Sends() {
		return SendOnly
	}
	return Inactive
}

// direction is the last one said, the stream's before the session's; sendrecv when none is (RFC 4566 6).
func direction(session, media []pion.Attribute) Direction {
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

// mappings are the rtpmaps of a stream by payload type: encoding and rate, in small letters, "/1" left out.
func mappings(attributes []pion.Attribute) map[string]string {
	maps := map[string]string{}
	for _, a := range attributes {
		if number, name, ok := strings.Cut(a.Value, " "); ok && a.Key == "rtpmap" {
			maps[number] = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(name)), "/1")
		}
	}
	return maps
}
