package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"ringfence.dev/libs/phone"
)

// Kinds of agent.
const (
	Scripted = "scripted"
	Realtime = "openai_realtime"
	MediaWS  = "media_ws"
	// Live is experimental.
	Live = "openai_live"
)

// What becomes of a call that a machine answered.
const (
	VoicemailHangUp  = "hang_up"
	VoicemailMessage = "leave_message"
	VoicemailGoOn    = "continue"
)

// Limits of a conversation.
const (
	// DefaultSilence is how long nobody may say anything.
	DefaultSilence = 30 * time.Second
	// Longest bounds every call, except those of openai_live: OpenAI ends a Realtime session after
	// 60 minutes.
	Longest = 55 * time.Minute
	// LongestLive bounds the calls of openai_live: OpenAI ends a Live session after two hours.
	LongestLive = 115 * time.Minute
)

// Settings are an agent's, as agents.v1 tells them. What an agent leaves out is its zero value, and means what is said here.
type Settings struct {
	// Kind of agent; empty: scripted.
	Kind         string `json:"kind"`
	Instructions string `json:"instructions"`
	Voice        string `json:"voice"`
	// Language is a BCP 47 tag; empty: English.
	Language string `json:"language"`
	Greeting string `json:"greeting"`
	// Disclosure that the agent is an AI, spoken first on every call.
	Disclosure Disclosure `json:"disclosure"`
	// Recording says how the person is told that the call is recorded, where the workspace has calls recorded.
	Recording Recording `json:"recording"`
	// Model and BaseURL are of openai_realtime and openai_live. If empty, the operator's are used.
	// MediaURL is of media_ws.
	Model    string `json:"model"`
	BaseURL  string `json:"base_url"`
	MediaURL string `json:"media_url"`
	// OnVoicemail is one of the policies; empty: continue. Message is left, after the beep.
	OnVoicemail string `json:"on_voicemail"`
	Message     string `json:"voicemail_message"`
	// Outcomes are the agent's own list; empty: contract.md's.
	Outcomes []string `json:"outcomes"`
	// Transfers are the only numbers that a call may be handed to, by the names that the agent is told.
	Transfers map[string]string `json:"transfers"`
	// SilenceSeconds is how long nobody may say anything; zero: 30.
	SilenceSeconds int `json:"silence_seconds"`
	// Script is a scripted agent's.
	Script Script `json:"script"`
	// Summary is where a finished call is summarised; what is empty is the operator's.
	Summary Summarised `json:"summary"`
	// NoiseReduction and TurnDetection are of openai_realtime. If nil, the person's audio is not
	// filtered, and turns are detected by server_vad with OpenAI's defaults.
	NoiseReduction *NoiseReduction `json:"noise_reduction"`
	TurnDetection  *TurnDetection  `json:"turn_detection"`
}

// NoiseReduction is the Realtime API's filter of the person's audio: near_field or far_field.
type NoiseReduction struct {
	Type string `json:"type"`
}

// TurnDetection says how the model recognises that the person has finished speaking. Type is
// server_vad or semantic_vad; Eagerness belongs to semantic_vad, the other fields to server_vad.
// The service calls validates them. What is nil or empty is OpenAI's default.
type TurnDetection struct {
	Type              string   `json:"type"`
	Threshold         *float64 `json:"threshold,omitempty"`
	PrefixPaddingMS   *int64   `json:"prefix_padding_ms,omitempty"`
	SilenceDurationMS *int64   `json:"silence_duration_ms,omitempty"`
	IdleTimeoutMS     *int64   `json:"idle_timeout_ms,omitempty"`
	Eagerness         string   `json:"eagerness,omitempty"`
}

// Summarised is an OpenAI-compatible endpoint.
type Summarised struct {
	BaseURL string `json:"base_url"`
	Model   string `json:"model"`
}

// Disclosure is on unless OffReason, which is recorded with the agent, says why not. Text stands for the sentence of the agent's language.
type Disclosure struct {
	Text      string `json:"text"`
	OffReason string `json:"off_reason"`
}

// Recording of an agent's calls; Off: never. Notice stands for the sentence of the agent's language.
type Recording struct {
	Notice string `json:"notice"`
	Off    bool   `json:"off"`
}

// Script is what a scripted agent does: after an answer a tone of ToneHz for ToneMillis (zero: none), and the end after EndAfterMillis (zero: when the person hangs up).
type Script struct {
	ToneHz         int `json:"tone_hz"`
	ToneMillis     int `json:"tone_millis"`
	EndAfterMillis int `json:"end_after_millis"`
	// Speaks says that its tones stand for words, the notice of a recording among them: for tests.
	Speaks bool `json:"speaks"`
}

// ReadSettings reads an agent's settings; a field that is not of its kind is an error naming it, fields that nobody knows are left alone.
func ReadSettings(raw []byte) (Settings, error) {
	var s Settings
	if len(bytes.TrimSpace(raw)) > 0 {
		if err := json.Unmarshal(raw, &s); err != nil {
			return Settings{}, fmt.Errorf("read agent settings: %w", err)
		}
	}
	s.Disclosure.OffReason, s.Disclosure.Text = strings.TrimSpace(s.Disclosure.OffReason), strings.TrimSpace(s.Disclosure.Text)
	switch {
	case !slices.Contains([]string{"", Scripted, Realtime, MediaWS, Live}, s.Kind):
		return Settings{},
			fmt.Errorf("read agent settings: kind %q is none of %s, %s, %s, %s", s.Kind, Realtime, MediaWS, Scripted, Live)
	case !slices.Contains([]string{"", VoicemailHangUp, VoicemailMessage, VoicemailGoOn}, s.OnVoicemail):
		return Settings{}, fmt.Errorf("read agent settings: on_voicemail %q is none of %s, %s, %s", s.OnVoicemail, VoicemailHangUp, VoicemailMessage, VoicemailGoOn)
	case s.Kind == MediaWS && s.MediaURL == "":
		return Settings{}, fmt.Errorf("read agent settings: a %s agent needs its media_url", MediaWS)
	case s.SilenceSeconds < 0 || s.Script.ToneMillis < 0 || s.Script.EndAfterMillis < 0 || s.Script.ToneHz < 0 || s.Script.ToneHz >= BytesPerSecond/2:
		return Settings{}, fmt.Errorf("read agent settings: silence_seconds and script hold a number out of range")
	case s.Script.ToneMillis > int(time.Minute/time.Millisecond):
		return Settings{}, fmt.Errorf("read agent settings: a tone is no longer than a minute")
	}
	for name, number := range s.Transfers {
		if _, ok := phone.Parse(number); !ok || strings.TrimSpace(name) == "" {
			return Settings{}, fmt.Errorf("read agent settings: transfers names somebody without an E.164 number")
		}
	}
	return s, nil
}

// Silence is how long nobody may say anything.
func (s Settings) Silence() time.Duration {
	if s.SilenceSeconds == 0 {
		return DefaultSilence
	}
	return time.Duration(s.SilenceSeconds) * time.Second
}

// Longest is how long a call of the agent can last, whatever its settings say.
func (s Settings) Longest() time.Duration {
	if s.Kind == Live {
		return LongestLive
	}
	return Longest
}

// OutcomeList is what an outcome may be. opted_out, callback_requested and transferred are always among them, since tools reach them.
func (s Settings) OutcomeList() []string {
	if len(s.Outcomes) == 0 {
		return Outcomes()
	}
	list := slices.Clone(s.Outcomes)
	for _, always := range []string{OutcomeOptedOut, OutcomeCallbackRequested, OutcomeTransferred, OutcomeNoConversation, OutcomeUnknown} {
		if !slices.Contains(list, always) {
			list = append(list, always)
		}
	}
	return list
}
