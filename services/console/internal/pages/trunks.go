package pages

import (
	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
)

// trunk is a trunk with its state, as the operator API returns it.
type trunk struct {
	ID             uuid.UUID `json:"id"`
	Name           string    `json:"name"`
	Status         string    `json:"status"`
	Host           string    `json:"host"`
	Port           int       `json:"port"`
	Transport      string    `json:"transport"`
	Username       *string   `json:"username"`
	HasPassword    bool      `json:"has_password"`
	Register       bool      `json:"register"`
	CallerIDs      []string  `json:"caller_ids"`
	Codecs         []string  `json:"codecs"`
	SRTP           string    `json:"srtp"`
	Channels       int32     `json:"channels"`
	CallsPerSecond int32     `json:"calls_per_second"`
	Priority       int32     `json:"priority"`
	InboundSources []string  `json:"inbound_sources"`
	trunkCondition
	ChannelsInUse int `json:"channels_in_use"`
	Replicas      []struct {
		Replica    string            `json:"replica"`
		ReportedAt openapi.Timestamp `json:"reported_at"`
		trunkCondition
	} `json:"replicas"`
}

// trunkCondition is the state of a trunk in one process, or combined from all processes.
type trunkCondition struct {
	State            string             `json:"state"`
	CircuitOpenUntil *openapi.Timestamp `json:"circuit_open_until"`
	Registered       *bool              `json:"registered"`
	RegisteredUntil  *openapi.Timestamp `json:"registered_until"`
	RegisterError    *string            `json:"register_error"`
	LastAnswer       *struct {
		At           openapi.Timestamp `json:"at"`
		Status       int               `json:"status"`
		Milliseconds int64             `json:"round_trip_ms"`
	} `json:"last_answer"`
	OptionsError *string `json:"options_error"`
	Recent       struct {
		Calls     int     `json:"calls"`
		Failures  int     `json:"failures"`
		ErrorRate float64 `json:"error_rate"`
	} `json:"recent"`
}
