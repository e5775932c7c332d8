package mediaws

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
)

// message is a message of the protocol, in either direction. It contains the name of an event, and
// one object under the same name.
type message struct {
	Event          string      `json:"event"`
	SequenceNumber string      `json:"sequenceNumber,omitempty"`
	StreamSID      string      `json:"streamSid,omitempty"`
	Protocol       string      `json:"protocol,omitempty"`
	Version        string      `json:"version,omitempty"`
	Start          *start      `json:"start,omitempty"`
	Media          *media      `json:"media,omitempty"`
	DTMF           *dtmf       `json:"dtmf,omitempty"`
	Mark           *mark       `json:"mark,omitempty"`
	Stop           *stop       `json:"stop,omitempty"`
	Say            *say        `json:"say,omitempty"`
	ToolResult     *toolResult `json:"toolResult,omitempty"`
	Transcript     *transcript `json:"transcript,omitempty"`
	Tool           *tool       `json:"tool,omitempty"`
}

type start struct {
	StreamSID string   `json:"streamSid"`
	CallSID   string   `json:"callSid"`
	Tracks    []string `json:"tracks"`
	// The values of CustomParameters are strings. The value of the key variables is a JSON object,
	// encoded as a string.
	CustomParameters map[string]string `json:"customParameters"`
	MediaFormat      mediaFormat       `json:"mediaFormat"`
}

type mediaFormat struct {
	Encoding   string `json:"encoding"`
	SampleRate int    `json:"sampleRate"`
	Channels   int    `json:"channels"`
}

type media struct {
	Payload string `json:"payload"`
}

type dtmf struct {
	Track string `json:"track"`
	Digit string `json:"digit"`
}

type mark struct {
	Name string `json:"name"`
}

type stop struct {
	CallSID string `json:"callSid"`
}

type say struct {
	Text string `json:"text"`
}

type transcript struct {
	Role string `json:"role"`
	Text string `json:"text"`
}

type tool struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type toolResult struct {
	ID     string          `json:"id"`
	Result json.RawMessage `json:"result"`
}

// decode decodes a message. It returns an error for invalid JSON, but not for an unknown event.
func decode(text []byte) (message, error) {
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return message{}, fmt.Errorf("read the agent's message: %w", err)
	}
	return m, nil
}

func (m message) audio() ([]byte, error) {
	if m.Media == nil {
		return nil, fmt.Errorf("read the agent's audio: no media")
	}
	audio, err := base64.StdEncoding.DecodeString(m.Media.Payload)
	if err != nil {
		return nil, fmt.Errorf("read the agent's audio: %w", err)
	}
	return audio, nil
}

// encodeAudio appends the message with an audio frame to dst. Only the socket's writer calls it.
func (s *session) encodeAudio(dst, frame []byte) []byte {
	dst = append(dst, `{"event":"media","sequenceNumber":"`...)
	dst = strconv.AppendInt(dst, s.counter.Add(1), 10)
	dst = append(dst, `","streamSid":"`...)
	dst = append(dst, s.stream...)
	dst = append(dst, `","media":{"track":"inbound","chunk":"`...)
	s.chunk++
	dst = strconv.AppendInt(dst, s.chunk, 10)
	dst = append(dst, `","timestamp":"`...)
	dst = strconv.AppendInt(dst, (s.chunk-1)*20, 10)
	dst = append(dst, `","payload":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, frame)
	return append(dst, `"}}`...)
}
