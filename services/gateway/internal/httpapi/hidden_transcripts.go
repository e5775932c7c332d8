package httpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
)

// hideTranscripts returns an event stream without transcripts, summaries and links to recordings,
// for a person who may not read them or gave no reason. All other lines of the stream are
// unchanged.
func hideTranscripts(stream io.ReadCloser) io.ReadCloser {
	return &redactedStream{Closer: stream, lines: bufio.NewReader(stream)}
}

type redactedStream struct {
	io.Closer
	lines *bufio.Reader
	rest  []byte // the part of a redacted line that Read has not returned yet
}

func (s *redactedStream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			return 0, err // an incomplete line is not sent; the client resumes before this line
		}
		s.rest = redactLine(line)
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

var dataField = []byte("data:")

func redactLine(line []byte) []byte {
	body, isData := bytes.CutPrefix(line, dataField)
	if !isData {
		return line
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // a float64 would lose digits of large numbers
	var event map[string]any
	if err := decoder.Decode(&event); err != nil {
		return []byte("data: {}\n") // a line that cannot be read could contain a transcript
	}
	data, _ := event["data"].(map[string]any)
	for _, name := range []string{"transcript", "summary", "recording_url", "text"} {
		if _, has := data[name]; has {
			data[name] = nil
		}
	}
	redacted, err := json.Marshal(event)
	if err != nil {
		return []byte("data: {}\n")
	}
	return append(append([]byte("data: "), redacted...), '\n')
}
