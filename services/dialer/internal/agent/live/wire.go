package live

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"ringfence.dev/services/dialer/internal/agent"
)

// The following types are the events of the Live API that the session uses. It ignores unknown
// events and fields.

type audioFormat struct {
	Type string `json:"type"`
	Rate int    `json:"rate"`
}

type audioOutput struct {
	Voice string `json:"voice"`
}

type audioConfig struct {
	Format audioFormat  `json:"format"`
	Output *audioOutput `json:"output,omitempty"`
}

type backendConfig struct {
	Model             string       `json:"model"`
	Instructions      string       `json:"instructions"`
	Tools             []agent.Tool `json:"tools"`
	ToolChoice        string       `json:"tool_choice"`
	ParallelToolCalls bool         `json:"parallel_tool_calls"`
}

type delegationConfig struct {
	Type      string        `json:"type"`
	Responses backendConfig `json:"responses"`
}

// sessionConfig configures a session. It cannot be changed after the session has started. The
// server refuses unknown fields.
type sessionConfig struct {
	Model        string           `json:"model"`
	Instructions string           `json:"instructions"`
	Audio        audioConfig      `json:"audio"`
	Delegation   delegationConfig `json:"delegation"`
}

const (
	// voiceRules instructs the voice model to delegate every action to the backend model, because
	// the voice model cannot call tools.
	voiceRules = "\n# Actions\nYou cannot call functions yourself. Wherever these instructions say to call one " +
		"(opt_out, schedule_callback, voicemail_detected, end_call, transfer, press_digits, stop_recording), delegate " +
		"that to the backend at once. " +
		"Never mention the backend to the person.\n"
	backendRules = "\n# Your task\nA voice model holds this conversation and delegates to you. Call the function " +
		"that the conversation asks for, and call no function " +
		"that it does not ask for. Answer with one short sentence for the person, or with nothing if the result needs none.\n"
)

// newSessionConfig returns the configuration of a session with PCMU audio, the codec of the
// telephone network.
func newSessionConfig(spec agent.Spec, model, backend string) sessionConfig {
	instructions := agent.Instructions(spec)
	cfg := sessionConfig{
		Model: model, Instructions: instructions + voiceRules,
		Audio: audioConfig{Format: audioFormat{Type: "audio/pcmu", Rate: agent.BytesPerSecond}},
		Delegation: delegationConfig{Type: "responses", Responses: backendConfig{
			Model: backend, Instructions: instructions + backendRules, Tools: agent.Tools(spec), ToolChoice: "auto",
		}},
	}
	if spec.Settings.Voice != "" {
		cfg.Audio.Output = &audioOutput{Voice: spec.Settings.Voice}
	}
	return cfg
}

type startEvent struct {
	Type    string        `json:"type"`
	EventID string        `json:"event_id"`
	Session sessionConfig `json:"session"`
}

// appendEvent adds text to the session. With the type session.commentary.append, the model speaks
// the text. With session.instructions.append, the text is an instruction for the model.
type appendEvent struct {
	Type    string `json:"type"`
	EventID string `json:"event_id"`
	// DelegationID is always null, because the text does not belong to a task that the voice model
	// gave to the backend.
	DelegationID *string `json:"delegation_id"`
	Content      string  `json:"content"`
}

type toolOutput struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Output string `json:"output"`
}

type itemEvent struct {
	Type string     `json:"type"`
	Item toolOutput `json:"item"`
}

type plainEvent struct {
	Type string `json:"type"`
}

type serverEvent struct {
	Type          string          `json:"type"`
	ClientEventID string          `json:"client_event_id"`
	Delta         json.RawMessage `json:"delta"`
	Reason        string          `json:"reason"`
	Error         struct {
		Type          string `json:"type"`
		Code          string `json:"code"`
		ClientEventID string `json:"client_event_id"`
	} `json:"error"`
	// Event is an event of the backend model.
	Event struct {
		Type string `json:"type"`
		Item struct {
			Type      string `json:"type"`
			Name      string `json:"name"`
			CallID    string `json:"call_id"`
			Arguments string `json:"arguments"`
		} `json:"item"`
	} `json:"event"`
}

func decode(message []byte) (serverEvent, error) {
	var e serverEvent
	if err := json.Unmarshal(message, &e); err != nil {
		return serverEvent{}, fmt.Errorf("read the agent's event: %w", err)
	}
	return e, nil
}

func (e serverEvent) audio() ([]byte, error) {
	var audio []byte // encoding/json decodes base64
	if err := json.Unmarshal(e.Delta, &audio); err != nil {
		return nil, fmt.Errorf("read the agent's audio: %w", err)
	}
	return audio, nil
}

func (e serverEvent) text() string {
	var text string
	if json.Unmarshal(e.Delta, &text) != nil {
		return ""
	}
	return strings.ToValidUTF8(text, "")
}

// errorCode returns the code of an error or, if it has no code, its type. The error's message is
// not logged.
func (e serverEvent) errorCode() string {
	if e.Error.Code != "" {
		return e.Error.Code
	}
	return e.Error.Type
}

func appendAudio(dst, frame []byte) []byte {
	dst = append(dst, `{"type":"session.input_audio.append","audio":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, frame)
	return append(dst, `"}`...)
}

// maxAppend is the maximum length of the text in one appendEvent, in characters. The server accepts
// 500 tokens.
const maxAppend = 1200

// splitText splits a text into pieces that each fit into one appendEvent. If possible, it cuts
// after a space.
func splitText(text string) []string {
	var parts []string
	runes := []rune(text)
	for len(runes) > maxAppend {
		end := maxAppend
		for i := maxAppend; i > maxAppend/2; i-- {
			if runes[i-1] == ' ' {
				end = i
				break
			}
		}
		parts, runes = append(parts, string(runes[:end])), runes[end:]
	}
	return append(parts, string(runes))
}
