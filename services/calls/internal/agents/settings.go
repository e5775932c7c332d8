package agents

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/ssrf"
)

const (
	maxInstructions = 64 << 10 // characters
	maxSpokenText   = 2000     // maximum number of characters of each text that the agent speaks
	maxWord         = 200
	maxOutcomes     = 50
	maxTransfers    = 50
)

const kindWanted = "must be scripted, openai_realtime, media_ws or openai_live (experimental)."

// knownSettings contains the settings that the dialer uses. Other settings are stored and returned,
// but have no effect.
type knownSettings struct {
	Kind             string            `json:"kind"`
	Instructions     string            `json:"instructions"`
	Voice            string            `json:"voice"`
	Language         string            `json:"language"`
	Greeting         string            `json:"greeting"`
	Disclosure       disclosure        `json:"disclosure"`
	Recording        recordingNotice   `json:"recording"`
	Model            string            `json:"model"`
	BaseURL          string            `json:"base_url"`
	MediaURL         string            `json:"media_url"`
	OnVoicemail      string            `json:"on_voicemail"`
	VoicemailMessage string            `json:"voicemail_message"`
	Outcomes         []string          `json:"outcomes"`
	Transfers        map[string]string `json:"transfers"`
	SilenceSeconds   *int64            `json:"silence_seconds"`
	Summary          summaryModel      `json:"summary"`
	Script           script            `json:"script"`
	NoiseReduction   *noiseReduction   `json:"noise_reduction"`
	TurnDetection    *turnDetection    `json:"turn_detection"`
}

// disclosure configures the sentence with which the agent says that it is an AI. The agent speaks
// the sentence unless OffReason is set. The audit log stores the reason.
type disclosure struct {
	Text      string `json:"text"`
	OffReason string `json:"off_reason"`
}

// recordingNotice configures the sentence that announces the recording. It is spoken if the
// workspace has recording enabled. If Off is true, calls of this agent are not recorded.
type recordingNotice struct {
	Notice string `json:"notice"`
	Off    bool   `json:"off"`
}

// summaryModel sets the model that summarizes finished calls. If a field is empty, the dialer uses
// the value from its own configuration.
type summaryModel struct {
	BaseURL string `json:"base_url"`
	Model   string `json:"model"`
}

// script is the behavior of a scripted agent: it plays a tone and ends the call after a given time.
type script struct {
	ToneHz         int  `json:"tone_hz"`
	ToneMillis     int  `json:"tone_millis"`
	EndAfterMillis int  `json:"end_after_millis"`
	Speaks         bool `json:"speaks"`
}

// parseKnownSettings decodes and validates the settings that the dialer uses. An error names the
// field and its valid values.
func parseKnownSettings(settings map[string]json.RawMessage) (knownSettings, error) {
	var k knownSettings
	for _, field := range []struct {
		name, want string
		into       any
	}{
		{"kind", kindWanted, &k.Kind},
		{"instructions", "must be a string.", &k.Instructions},
		{"voice", "must be a string.", &k.Voice},
		{"language", "must be a language tag such as en or pt-BR.", &k.Language},
		{"greeting", "must be a string.", &k.Greeting},
		{"disclosure", `must be an object such as {"text":"…"} or {"off_reason":"…"}.`, &k.Disclosure},
		{"recording", `must be an object such as {"notice":"…"} or {"off":true}.`, &k.Recording},
		{"model", "must be a string.", &k.Model},
		{"base_url", "must be a string.", &k.BaseURL},
		{"media_url", "must be a string.", &k.MediaURL},
		{"on_voicemail", "must be hang_up, leave_message or continue.", &k.OnVoicemail},
		{"voicemail_message", "must be a string.", &k.VoicemailMessage},
		{"outcomes", "must be a list of strings.", &k.Outcomes},
		{"transfers", `must be an object of E.164 numbers by name, such as {"sales":"+14155550100"}.`, &k.Transfers},
		{"silence_seconds", "must be a whole number from 5 to 300.", &k.SilenceSeconds},
		{"summary", `must be an object such as {"base_url":"https://…/v1","model":"…"}.`, &k.Summary},
		{"script", `must be an object such as {"tone_hz":440,"tone_millis":500,"end_after_millis":5000}.`, &k.Script},
		{"noise_reduction", `must be an object such as {"type":"far_field"}.`, &k.NoiseReduction},
		{
			"turn_detection",
			`must be an object such as {"type":"server_vad","threshold":0.5,"silence_duration_ms":500} or ` +
				`{"type":"semantic_vad","eagerness":"low"}.`,
			&k.TurnDetection,
		},
	} {
		for name := range settings {
			// json.Unmarshal ignores the case of member names, so the dialer would use this member although
			// it was not validated
			if name != field.name && strings.EqualFold(name, field.name) {
				return knownSettings{}, apierr.Validation(name, "must be written %s.", field.name)
			}
		}
		raw, given := settings[field.name]
		if given && json.Unmarshal(raw, field.into) != nil {
			return knownSettings{}, apierr.Validation(field.name, "%s", field.want)
		}
	}
	for _, judge := range []func() error{k.judgeKind, k.judgeWords, k.judgeLists, k.judgeDetection} {
		if err := judge(); err != nil {
			return knownSettings{}, err
		}
	}
	return k, nil
}

var languageTag = regexp.MustCompile(`^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$`)

func (k knownSettings) judgeKind() error {
	switch {
	case !slices.Contains([]string{"", "scripted", "openai_realtime", "media_ws", "openai_live"}, k.Kind):
		return apierr.Validation("kind", kindWanted)
	case k.Kind == "media_ws" && k.MediaURL == "":
		return apierr.Validation("media_url", "is missing: a media_ws agent is reached at the wss URL of your own agent.")
	case !slices.Contains([]string{"", "hang_up", "leave_message", "continue"}, k.OnVoicemail):
		return apierr.Validation("on_voicemail", "must be hang_up, leave_message or continue.")
	case k.OnVoicemail == "leave_message" && k.VoicemailMessage == "":
		return apierr.Validation("voicemail_message", "is missing: say what is left after the beep.")
	case k.Language != "" && !languageTag.MatchString(k.Language):
		return apierr.Validation("language", "must be a language tag such as en or pt-BR.")
	case k.SilenceSeconds != nil && (*k.SilenceSeconds < 5 || *k.SilenceSeconds > 300):
		return apierr.Validation("silence_seconds", "must be a whole number from 5 to 300.")
	case !k.Script.playable():
		return apierr.Validation("script", "holds a number out of range: tone_hz is 0 to 3999, tone_millis 0 to 60000, end_after_millis not below 0.")
	}
	for _, at := range []struct{ field, text, scheme string }{{"base_url", k.BaseURL, "wss"}, {"media_url", k.MediaURL, "wss"}, {"summary.base_url", k.Summary.BaseURL, "https"}} {
		if at.text == "" {
			continue
		}
		if _, err := ssrf.CheckURL(at.text, at.scheme, acceptAnyAddress); err != nil {
			return apierr.Validation(at.field, "%s.", err)
		}
	}
	return nil
}

func (s script) playable() bool {
	return s.ToneHz >= 0 && s.ToneHz < 4000 && s.ToneMillis >= 0 && s.ToneMillis <= 60_000 && s.EndAfterMillis >= 0
}

// acceptAnyAddress accepts every IP address. The dialer checks the address of the agent's server
// when it connects, because it resolves the host name only then.
func acceptAnyAddress(netip.Addr) bool { return true }

func (k knownSettings) judgeWords() error {
	for _, field := range []struct {
		name, text string
		longest    int
	}{
		{"instructions", k.Instructions, maxInstructions}, {"voice", k.Voice, maxWord}, {"model", k.Model, maxWord}, {"language", k.Language, maxWord},
		{"greeting", k.Greeting, maxSpokenText},
		{"voicemail_message", k.VoicemailMessage, maxSpokenText},
		{"disclosure.text", k.Disclosure.Text, maxSpokenText},
		{"recording.notice", k.Recording.Notice, maxSpokenText},
		{"disclosure.off_reason", k.Disclosure.OffReason, maxSpokenText}, {"summary.model", k.Summary.Model, maxWord},
	} {
		if utf8.RuneCountInString(field.text) > field.longest {
			return apierr.Validation(field.name, "must have at most %d characters.", field.longest)
		}
	}
	switch {
	case k.Disclosure.OffReason != "" && strings.TrimSpace(k.Disclosure.OffReason) == "":
		return apierr.Validation("disclosure.off_reason", "must say why the agent need not tell that it is an AI.")
	case k.Disclosure.OffReason != "" && k.Disclosure.Text != "":
		return apierr.Validation("disclosure", "has a text and an off_reason; it is one or the other.")
	}
	return nil
}

func (k knownSettings) judgeLists() error {
	if len(k.Outcomes) > maxOutcomes || len(k.Transfers) > maxTransfers {
		field := "outcomes"
		if len(k.Outcomes) <= maxOutcomes {
			field = "transfers"
		}
		return apierr.Validation(field, "must have at most %d entries.", maxOutcomes)
	}
	for i, outcome := range k.Outcomes {
		if strings.TrimSpace(outcome) == "" || utf8.RuneCountInString(outcome) > maxWord || slices.Contains(k.Outcomes[:i], outcome) {
			return apierr.Validation("outcomes", "must be different words of 1 to %d characters.", maxWord)
		}
	}
	for name, text := range k.Transfers {
		number, ok := phone.Parse(text)
		if !ok || strings.TrimSpace(name) == "" || utf8.RuneCountInString(name) > maxWord {
			return apierr.Validation("transfers", `must be an object of E.164 numbers by name, such as {"sales":"+14155550100"}.`)
		}
		if kind := number.Forbidden(); kind != "" {
			return apierr.Validation("transfers", "names a number to which no call is placed (%s).", kind)
		}
	}
	return nil
}
