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

// Kinds of agents.
const (
	Scripted = "scripted"
	Realtime = "openai_realtime"
	MediaWS  = "media_ws"
	// Live is the kind of agents that use the Live API. This kind is experimental.
	Live = "openai_live"
)

// Policies for a call that an answering machine answered.
const (
	VoicemailHangUp  = "hang_up"
	VoicemailMessage = "leave_message"
	VoicemailGoOn    = "continue"
)

// Limits of a conversation.
const (
	// DefaultSilence is how long both sides can be silent before the call ends.
	DefaultSilence = 30 * time.Second
	// Longest is the maximum duration of all calls except those of openai_live. OpenAI ends a Realtime
	// session after 60 minutes.
	Longest = 55 * time.Minute
	// LongestLive is the maximum duration of the calls of openai_live. OpenAI ends a Live session
	// after two hours.
	LongestLive = 115 * time.Minute
)

// Settings contains the settings of an agent, as in the topic agents.v1. A missing field has the
// zero value, which the field's comment explains.
type Settings struct {
	// Kind is the kind of the agent, such as openai_realtime. If empty, it is scripted.
	Kind         string `json:"kind"`
	Instructions string `json:"instructions"`
	Voice        string `json:"voice"`
	// Language is a BCP 47 tag. If empty, it is English.
	Language string `json:"language"`
	Greeting string `json:"greeting"`
	// Disclosure is spoken first on every call.
	Disclosure Disclosure `json:"disclosure"`
	// Recording describes how the agent announces a recording, if the workspace records calls.
	Recording Recording `json:"recording"`
	// openai_realtime and openai_live use Model and BaseURL. If these are empty, the operator's model
	// and URL are used. media_ws uses MediaURL.
	Model    string `json:"model"`
	BaseURL  string `json:"base_url"`
	MediaURL string `json:"media_url"`
	// OnVoicemail is the policy for a call that an answering machine answered. If empty, it is
	// VoicemailGoOn. Message is the message for an answering machine.
	OnVoicemail string `json:"on_voicemail"`
	Message     string `json:"voicemail_message"`
	// Outcomes contains the permitted outcomes of this agent. If empty, the list that the function
	// Outcomes returns is used.
	Outcomes []string `json:"outcomes"`
	// Transfers contains the numbers to which a call can be transferred. A key is the name with which
	// the model selects the number.
	Transfers map[string]string `json:"transfers"`
	// SilenceSeconds is how long both sides can be silent before the call ends. 0 means 30.
	SilenceSeconds int `json:"silence_seconds"`
	// Script is the script of a scripted agent.
	Script Script `json:"script"`
	// Summary configures the model that summarises ended calls. For empty fields, the operator's
	// settings are used.
	Summary Summarised `json:"summary"`
	// NoiseReduction and TurnDetection are settings of openai_realtime. If NoiseReduction is nil, the
	// person's audio is not filtered. If TurnDetection is nil, server_vad with OpenAI's defaults
	// detects the end of the person's speech.
	NoiseReduction *NoiseReduction `json:"noise_reduction"`
	TurnDetection  *TurnDetection  `json:"turn_detection"`
}

// NoiseReduction is the Realtime API's filter of the person's audio: near_field or far_field.
type NoiseReduction struct {
	Type string `json:"type"`
}

// TurnDetection configures how the model detects that the person has finished speaking. Type is
// server_vad or semantic_vad. Eagerness applies to semantic_vad, and the other fields apply to
// server_vad. For a field that is nil or empty, OpenAI's default is used.
type TurnDetection struct {
	Type              string   `json:"type"`
	Threshold         *float64 `json:"threshold,omitempty"`
	PrefixPaddingMS   *int64   `json:"prefix_padding_ms,omitempty"`
	SilenceDurationMS *int64   `json:"silence_duration_ms,omitempty"`
	IdleTimeoutMS     *int64   `json:"idle_timeout_ms,omitempty"`
	Eagerness         string   `json:"eagerness,omitempty"`
}

// Summarised identifies a model at an OpenAI-compatible endpoint.
type Summarised struct {
	BaseURL string `json:"base_url"`
	Model   string `json:"model"`
}

// Disclosure configures the disclosure. It is spoken unless OffReason contains the reason for
// turning it off. Text replaces the default sentence of the agent's language.
type Disclosure struct {
	Text      string `json:"text"`
	OffReason string `json:"off_reason"`
}

// Recording configures the recording notice. If Off is true, the agent's calls are never recorded.
// Notice replaces the default sentence of the agent's language.
type Recording struct {
	Notice string `json:"notice"`
	Off    bool   `json:"off"`
}

// Script defines what a scripted agent does after the person has answered. It plays a tone of
// ToneHz for ToneMillis; 0 means no tone. It ends the call after EndAfterMillis; 0 means that the
// call ends when the person hangs up.
type Script struct {
	ToneHz         int `json:"tone_hz"`
	ToneMillis     int `json:"tone_millis"`
	EndAfterMillis int `json:"end_after_millis"`
	// If Speaks is true, the agent plays a tone as the recording notice. Speaks is for tests.
	Speaks bool `json:"speaks"`
}

// ReadSettings reads an agent's settings. It returns an error if a field has an invalid value. It
// ignores unknown fields.
func ReadSettings(raw []byte) (Settings, error) {
	var s Settings
	if len(bytes.TrimSpace(raw)) > 0 {
		if err := json.Unmarshal(raw, &s); err != nil {
			return Settings{}, fmt.Errorf("read agent settings: %w", err)
		}
	}
	s.Disclosure.OffReason, s.Disclosure.Text = strings.TrimSpace(
		s.Disclosure.OffReason,
	), strings.TrimSpace(
		s.Disclosure.Text,
	)
	switch {
	case !slices.Contains([]string{"", Scripted, Realtime, MediaWS, Live}, s.Kind):
		return Settings{},
			fmt.Errorf(
				"read agent settings: kind %q is none of %s, %s, %s, %s",
				s.Kind,
				Realtime,
				MediaWS,
				Scripted,
				Live,
			)
	case !slices.Contains([]string{"", VoicemailHangUp, VoicemailMessage, VoicemailGoOn}, s.OnVoicemail):
		return Settings{}, fmt.Errorf(
			"read agent settings: on_voicemail %q is none of %s, %s, %s",
			s.OnVoicemail,
			VoicemailHangUp,
			VoicemailMessage,
			VoicemailGoOn,
		)
	case s.Kind == MediaWS && s.MediaURL == "":
		return Settings{}, fmt.Errorf("read agent settings: a %s agent needs its media_url", MediaWS)
	case s.SilenceSeconds < 0 || s.Script.ToneMillis < 0 || s.Script.EndAfterMillis < 0 || s.Script.ToneHz < 0 || s.Script.ToneHz >= BytesPerSecond/2:
		return Settings{}, fmt.Errorf("read agent settings: silence_seconds or script contains a number that is out of range")
	case s.Script.ToneMillis > int(time.Minute/time.Millisecond):
		return Settings{}, fmt.Errorf("read agent settings: script.tone_millis is longer than a minute")
	}
	for name, number := range s.Transfers {
		if _, ok := phone.Parse(number); !ok || strings.TrimSpace(name) == "" {
			return Settings{}, fmt.Errorf("read agent settings: transfers has an entry without an E.164 number")
		}
	}
	return s, nil
}

// Silence returns how long both sides can be silent before the call ends.
func (s Settings) Silence() time.Duration {
	if s.SilenceSeconds == 0 {
		return DefaultSilence
	}
	return time.Duration(s.SilenceSeconds) * time.Second
}

// Longest returns the maximum duration of the agent's calls.
func (s Settings) Longest() time.Duration {
	if s.Kind == Live {
		return LongestLive
	}
	return Longest
}

// OutcomeList returns the permitted outcomes. It always contains the outcomes that the dialer
// itself sets, for example after a tool call.
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
