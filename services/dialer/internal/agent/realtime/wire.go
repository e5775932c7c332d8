package realtime

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"ringfence.dev/services/dialer/internal/agent"
)

// The following types are the events of the Realtime API (GA) that the session uses. The session
// ignores unknown fields of events.

// The audio format and the modality of phone calls.
const (
	mulaw    = "audio/pcmu"
	modality = "audio"
)

type format struct {
	Type string `json:"type"`
}

// transcription configures the transcription of the person's speech. Depending on the model, it
// contains Language or Languages.
type transcription struct {
	Model     string   `json:"model"`
	Language  string   `json:"language,omitempty"`
	Languages []string `json:"languages,omitempty"`
}

// newTranscription returns the transcription for a model. It uses only the primary subtag of a BCP
// 47 language tag, as the API requires. gpt-transcribe and gpt-live-transcribe accept a list of
// languages, all other models one language.
func newTranscription(model, tag string) *transcription {
	primary, _, _ := strings.Cut(strings.ToLower(tag), "-")
	if primary != "" && (model == "gpt-transcribe" || model == "gpt-live-transcribe") {
		return &transcription{Model: model, Languages: []string{primary}}
	}
	return &transcription{Model: model, Language: primary}
}

// turnDetection configures how the model detects the person's speech. During the disclosure, speech
// is transcribed, but it neither causes a response nor interrupts the model.
type turnDetection struct {
	agent.TurnDetection
	CreateResponse    bool `json:"create_response"`
	InterruptResponse bool `json:"interrupt_response"`
}

type audioInput struct {
	Format         format                `json:"format"`
	NoiseReduction *agent.NoiseReduction `json:"noise_reduction,omitempty"`
	Transcription  *transcription        `json:"transcription,omitempty"`
	TurnDetection  turnDetection         `json:"turn_detection"`
}

type audioOutput struct {
	Format format `json:"format"`
	Voice  string `json:"voice,omitempty"`
}

type audioSettings struct {
	Input  audioInput   `json:"input"`
	Output *audioOutput `json:"output,omitempty"`
}

type sessionSettings struct {
	Type             string        `json:"type"`
	OutputModalities []string      `json:"output_modalities,omitempty"`
	Instructions     string        `json:"instructions,omitempty"`
	Audio            audioSettings `json:"audio"`
	Tools            []agent.Tool  `json:"tools,omitempty"`
	ToolChoice       string        `json:"tool_choice,omitempty"`
}

type responseSettings struct {
	Instructions string            `json:"instructions,omitempty"`
	ToolChoice   string            `json:"tool_choice,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
}

type content struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type conversationItem struct {
	Type    string    `json:"type"`
	Role    string    `json:"role,omitempty"`
	Content []content `json:"content,omitempty"`
	CallID  string    `json:"call_id,omitempty"`
	Output  string    `json:"output,omitempty"`
}

// clientEvent is an event that is sent to the model. Audio is not sent as clientEvent; appendAudio
// writes it.
type clientEvent struct {
	Type     string            `json:"type"`
	EventID  string            `json:"event_id,omitempty"`
	Session  *sessionSettings  `json:"session,omitempty"`
	Response *responseSettings `json:"response,omitempty"`
	Item     *conversationItem `json:"item,omitempty"`
	*truncation
}

type truncation struct {
	ItemID       string `json:"item_id"`
	ContentIndex int    `json:"content_index"`
	AudioEndMS   int64  `json:"audio_end_ms"`
}

type serverEvent struct {
	Type       string          `json:"type"`
	ItemID     string          `json:"item_id"`
	ResponseID string          `json:"response_id"`
	Delta      json.RawMessage `json:"delta"`
	Transcript string          `json:"transcript"`
	CallID     string          `json:"call_id"`
	Name       string          `json:"name"`
	Arguments  string          `json:"arguments"`
	Response   struct {
		ID       string            `json:"id"`
		Status   string            `json:"status"`
		Metadata map[string]string `json:"metadata"`
	} `json:"response"`
	Item struct {
		ID        string `json:"id"`
		Type      string `json:"type"`
		Name      string `json:"name"`
		CallID    string `json:"call_id"`
		Arguments string `json:"arguments"`
	} `json:"item"`
	Error struct {
		Type    string `json:"type"`
		Code    string `json:"code"`
		EventID string `json:"event_id"`
	} `json:"error"`
}

// decode decodes an event. It returns an error for invalid JSON, but not for an unknown event.
func decode(message []byte) (serverEvent, error) {
	var e serverEvent
	if err := json.Unmarshal(message, &e); err != nil {
		return serverEvent{}, fmt.Errorf("read the agent's event: %w", err)
	}
	return e, nil
}

func (e serverEvent) audio() ([]byte, error) {
	if len(e.Delta) < 2 || e.Delta[0] != '"' {
		return nil, fmt.Errorf("read the agent's audio: not a string")
	}
	text := e.Delta[1 : len(e.Delta)-1]
	if bytes.IndexByte(text, '\\') >= 0 { // decode the string: JSON can contain \/ instead of /
		var plain string
		if err := json.Unmarshal(e.Delta, &plain); err != nil {
			return nil, fmt.Errorf("read the agent's audio: %w", err)
		}
		text = []byte(plain)
	}
	audio := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(audio, text)
	if err != nil {
		return nil, fmt.Errorf("read the agent's audio: %w", err)
	}
	return audio[:n], nil
}

func appendAudio(dst, frame []byte) []byte {
	dst = append(dst, `{"type":"input_audio_buffer.append","audio":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, frame)
	return append(dst, `"}`...)
}
