package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"ringfence.dev/libs/apierr"
)

// These constants limit turn detection. OpenAI documents limits only for the threshold and the idle
// timeout. Ringfence sets the other limits.
const (
	minIdleTimeoutMS     = 5_000
	maxIdleTimeoutMS     = 30_000
	maxPrefixPaddingMS   = 5_000
	minSilenceDurationMS = 20
	maxSilenceDurationMS = 10_000
)

// noiseReduction filters the person's audio before the model of an openai_realtime agent receives
// it.
type noiseReduction struct {
	Type string `json:"type"`
}

// turnDetection sets how the model of an openai_realtime agent recognizes that the person has
// finished speaking. The fields are those of the Realtime API, except create_response and
// interrupt_response, which the dialer sets.
type turnDetection struct {
	Type              string   `json:"type"`
	Threshold         *float64 `json:"threshold"`
	PrefixPaddingMS   *int64   `json:"prefix_padding_ms"`
	SilenceDurationMS *int64   `json:"silence_duration_ms"`
	IdleTimeoutMS     *int64   `json:"idle_timeout_ms"`
	Eagerness         string   `json:"eagerness"`
}

// UnmarshalJSON rejects unknown members. Otherwise the dialer would start the session without these
// members, and the operator would not notice it.
func (n *noiseReduction) UnmarshalJSON(raw []byte) error {
	type plain noiseReduction
	return decodeStrictly(raw, (*plain)(n))
}

// UnmarshalJSON rejects unknown members.
func (d *turnDetection) UnmarshalJSON(raw []byte) error {
	type plain turnDetection
	return decodeStrictly(raw, (*plain)(d))
}

func decodeStrictly(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("decode setting: %w", err)
	}
	return nil
}

func (k knownSettings) judgeDetection() error {
	noise, detection := k.NoiseReduction, k.TurnDetection
	switch live := k.Kind == "openai_live"; {
	case live && noise != nil:
		return apierr.Validation("noise_reduction", "is not a setting of openai_live: remove it with null.")
	case live && detection != nil:
		return apierr.Validation("turn_detection",
			"is not a setting of openai_live, whose model decides itself when to speak: remove it with null.")
	}
	if noise != nil && !slices.Contains([]string{"near_field", "far_field"}, noise.Type) {
		return apierr.Validation("noise_reduction.type", "must be near_field or far_field.")
	}
	if detection == nil {
		return nil
	}
	switch detection.Type {
	case "server_vad":
		return detection.judgeServerVAD()
	case "semantic_vad":
		return detection.judgeSemanticVAD()
	}
	return apierr.Validation("turn_detection.type", "must be server_vad or semantic_vad.")
}

func (d *turnDetection) judgeServerVAD() error {
	if d.Eagerness != "" {
		return apierr.Validation("turn_detection.eagerness", "is a setting of semantic_vad.")
	}
	if d.Threshold != nil && (*d.Threshold < 0 || *d.Threshold > 1) {
		return apierr.Validation("turn_detection.threshold", "must be a number from 0 to 1.")
	}
	for _, field := range []struct {
		name     string
		value    *int64
		min, max int64
	}{
		{"prefix_padding_ms", d.PrefixPaddingMS, 0, maxPrefixPaddingMS},
		{"silence_duration_ms", d.SilenceDurationMS, minSilenceDurationMS, maxSilenceDurationMS},
		{"idle_timeout_ms", d.IdleTimeoutMS, minIdleTimeoutMS, maxIdleTimeoutMS},
	} {
		if field.value != nil && (*field.value < field.min || *field.value > field.max) {
			return apierr.Validation("turn_detection."+field.name, "must be a whole number from %d to %d.", field.min, field.max)
		}
	}
	return nil
}

func (d *turnDetection) judgeSemanticVAD() error {
	for _, field := range []struct {
		name  string
		given bool
	}{
		{"threshold", d.Threshold != nil},
		{"prefix_padding_ms", d.PrefixPaddingMS != nil},
		{"silence_duration_ms", d.SilenceDurationMS != nil},
		{"idle_timeout_ms", d.IdleTimeoutMS != nil},
	} {
		if field.given {
			return apierr.Validation("turn_detection."+field.name, "is a setting of server_vad.")
		}
	}
	if !slices.Contains([]string{"", "low", "medium", "high", "auto"}, d.Eagerness) {
		return apierr.Validation("turn_detection.eagerness", "must be low, medium, high or auto.")
	}
	return nil
}
