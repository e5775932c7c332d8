package pages

import (
	"slices"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) trunkRoutes() []route {
	return []route{
		{"GET /operator/trunks", showTrunks},
		{"GET /operator/trunks/new", showNewTrunk},
		{"POST /operator/trunks/new", createTrunk},
		{"GET /operator/trunks/{trunk}", showTrunk},
		{"GET /operator/trunks/{trunk}/settings", showTrunkSettings},
		{"POST /operator/trunks/{trunk}/settings", changeTrunk},
		{"POST /operator/trunks/{trunk}/remove", removeTrunk},
		{"POST /operator/trunks/{trunk}/check", checkTrunk},
	}
}

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

// NeedsAttention reports whether the trunk is down, or many of its calls fail.
func (t trunk) NeedsAttention() bool {
	return slices.Contains([]string{"down", "circuit_open", "mixed"}, t.State) || t.Recent.ErrorRate >= trunkErrorRate
}

// Fault returns the newest error of the trunk, or "".
func (c trunkCondition) Fault() string {
	if text := textOf(c.RegisterError); text != "" {
		return text
	}
	return textOf(c.OptionsError)
}

// IsRegistered reports whether the trunk is registered. Registered is nil if the trunk does not
// register.
func (c trunkCondition) IsRegistered() bool { return c.Registered != nil && *c.Registered }

// Percent returns the share of failed calls in percent.
func (c trunkCondition) Percent() int { return int(100*c.Recent.ErrorRate + 0.5) }

func showTrunks(v *visit) (view, error) {
	var data struct {
		gateway.Page[trunk]
		Last string
	}
	err := concurrently(read(v, &data.Page, "/admin/v1/trunks", v.listQuery()))
	data.Last = lastID(data.Page, func(t trunk) uuid.UUID { return t.ID })
	return view{template: "trunks", title: "trunks.title", nav: "trunks", data: data}, err
}

// trunkCheck is the result of a check of a trunk.
type trunkCheck struct {
	OK    bool `json:"ok"`
	Steps []struct {
		Step   string  `json:"step"`
		Result string  `json:"result"`
		Seen   string  `json:"seen"`
		Remedy *string `json:"remedy"`
	} `json:"steps"`
}

type trunkData struct {
	trunk
	Dialing openapi.Dialing
	Check   *trunkCheck
	// Refused is the reason why no check was made.
	Refused *fault
}

// trunkPath returns the path of the page's trunk in the API.
func (v *visit) trunkPath() (string, error) {
	id, err := uuid.Parse(v.r.PathValue("trunk"))
	if err != nil {
		return "", errNotFound
	}
	return "/admin/v1/trunks/" + id.String(), nil
}

func showTrunk(v *visit) (view, error) { return v.showTrunk(nil, nil) }

func (v *visit) showTrunk(check *trunkCheck, refused *fault) (view, error) {
	path, err := v.trunkPath()
	if err != nil {
		return view{}, err
	}
	data := trunkData{Check: check, Refused: refused}
	err = concurrently(read(v, &data.trunk, path, nil), read(v, &data.Dialing, path+"/dialing", nil))
	return view{template: "trunk", title: "trunks.title", heading: data.Name, nav: "trunks", data: data}, err
}

// checkTrunk tests a trunk without a call and shows the steps.
func checkTrunk(v *visit) (view, error) {
	path, err := v.trunkPath()
	if err != nil {
		return view{}, err
	}
	check, err := gateway.Post[trunkCheck](v.r.Context(), v.Session, path+"/check", nil)
	if refused := faultOf(err); refused != nil {
		return v.showTrunk(nil, refused)
	}
	if err != nil {
		return view{}, err
	}
	return v.showTrunk(&check, nil)
}
