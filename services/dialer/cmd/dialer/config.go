package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/libs/seal"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/live"
	"ringfence.dev/services/dialer/internal/agent/realtime"
	"ringfence.dev/services/dialer/internal/dial"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/replicas"
	"ringfence.dev/services/dialer/internal/retention"
	"ringfence.dev/services/dialer/internal/summary"
)

// Config is the configuration that the dialer reads from the environment.
type Config struct {
	app.Config
	Sealing seal.Config

	ContactsURL string `env:"CONTACTS_URL,required" help:"base URL of contacts-compliance, which checks every dial"`
	Carrier     string `env:"CARRIER"               help:"carrier of the calls: sim (the simulated carrier) or sip (the trunks of /admin/v1/trunks)" envDefault:"sim"`
	SimURL      string `env:"SIM_URL"               help:"base URL of the simulated carrier; required with CARRIER=sim; with CARRIER=sip, the calls of test workspaces use it, and fail without it"`
	SimToken    string `env:"SIM_TOKEN"             help:"SIMCARRIER_TOKEN of the simulated carrier"`
	SIP         sipConfig
	// Realtime configures the operator's model for agents of the kind openai_realtime.
	Realtime realtime.Config
	// Live configures the operator's model for agents of the kind openai_live.
	Live live.Config
	// Summary configures the operator's model for summaries.
	Summary summary.Config

	Recordings recordingsConfig

	Attempts int `env:"DIAL_ATTEMPTS"          envDefault:"64"    help:"highest number of call requests that this process handles at a time"`
	// TrunkChannels and TrunkCallsPerSecond limit the sum of all replicas.
	TrunkChannels       int           `env:"TRUNK_CHANNELS"         envDefault:"10000" help:"highest number of live calls over trunks, of all replicas together"`
	TrunkCallsPerSecond int           `env:"TRUNK_CALLS_PER_SECOND" envDefault:"500"   help:"highest number of new calls per second over trunks, of all replicas together"`
	MaxLiveCalls        int           `env:"MAX_LIVE_CALLS"         envDefault:"10000" help:"highest number of live calls, of all workspaces and replicas together"`
	CallsPerSecond      int           `env:"CALLS_PER_SECOND"       envDefault:"500"   help:"highest number of new calls per second, of all workspaces and replicas together"`
	CircuitFailures     int           `env:"CIRCUIT_FAILURES"       envDefault:"5"     help:"consecutive failures after which the circuit of a carrier, trunk or agent opens"`
	CircuitRest         time.Duration `env:"CIRCUIT_REST"           envDefault:"1s"    help:"how long a circuit stays open the first time, as a duration; each failed test call doubles the time, up to 32 times the first"`

	QueueLimit    time.Duration `env:"QUEUE_LIMIT"    envDefault:"24h" help:"time after its due time at which a call request fails if it was not dialed, as a duration shorter than 1440h"`
	CapacityLimit time.Duration `env:"CAPACITY_LIMIT" envDefault:"24h" help:"how long a due call request waits for capacity before it fails with capacity_timeout, as a duration"`
	ClaimLease    time.Duration `env:"CLAIM_LEASE"    envDefault:"15s" help:"how long a claimed call request belongs to one process, as a duration"`
	InstanceLease time.Duration `env:"INSTANCE_LEASE" envDefault:"5s"  help:"time after its last heartbeat at which a process counts as dead, as a duration"`
	RingLimit     time.Duration `env:"RING_LIMIT"     envDefault:"60s" help:"how long a phone may ring, as a duration"`
	LookEvery     time.Duration `env:"LOOK_EVERY"     envDefault:"1m"  help:"interval at which the dialer asks the simulated carrier about each live call, in case an end event is missing, as a duration; 0: never"`
	WatchdogGrace time.Duration `env:"WATCHDOG_GRACE" envDefault:"60s" help:"time after the maximum duration of a call at which the dialer ends the call if the carrier has sent no end event, as a duration"`
}

// validate checks values that depend on each other or on a constant.
func (c Config) validate() error {
	// The row of a call request is deleted after RowPeriod, and Kafka can deliver the request again
	// later. By then the request must be older than QUEUE_LIMIT, so that it is not dialed again (ADR
	// 12).
	if c.QueueLimit <= 0 || c.QueueLimit >= retention.RowPeriod {
		return fmt.Errorf(
			"QUEUE_LIMIT (%s) must be longer than zero and shorter than %gh: the rows of ended requests are "+
				"deleted after that time, and a request that arrives again would be dialed twice. Set a shorter QUEUE_LIMIT",
			c.QueueLimit,
			retention.RowPeriod.Hours(),
		)
	}
	return nil
}

// configuredModels returns the configured models, each with the environment variable that sets it.
func (c Config) configuredModels() []agent.ConfiguredModel {
	return []agent.ConfiguredModel{
		{Variable: "REALTIME_MODEL", Model: c.Realtime.Model},
		{Variable: "REALTIME_TRANSCRIPTION_MODEL", Model: c.Realtime.TranscriptionModel},
		{Variable: "LIVE_MODEL", Model: c.Live.Model},
		{Variable: "LIVE_BACKEND_MODEL", Model: c.Live.BackendModel},
		{Variable: "SUMMARY_MODEL", Model: c.Summary.Model},
	}
}

func (c Config) limits(
	ofTrunk func(context.Context) (dialqueue.Limit, error), mayDial func() bool, circuits *agent.Circuits,
) dial.Limits {
	failures := c.CircuitFailures
	if c.Carrier == "sip" { // with SIP, each trunk has its own circuit
		failures = 0
	}
	return dial.Limits{
		Attempts: c.Attempts, Failures: failures, CircuitRest: c.CircuitRest,
		Overall: dialqueue.Limit{Live: c.MaxLiveCalls, PerSecond: c.CallsPerSecond},
		OfTrunk: ofTrunk, Agents: circuits, MayDial: mayDial,
	}
}

type sipConfig struct {
	UDP           string        `env:"SIP_UDP_ADDR"         envDefault:"127.0.0.1:5060" help:"address to listen on for SIP over UDP; empty: none"`
	TCP           string        `env:"SIP_TCP_ADDR"                                     help:"address to listen on for SIP over TCP; empty: none"`
	TLS           string        `env:"SIP_TLS_ADDR"                                     help:"address to listen on for SIP over TLS; empty: none"`
	Certificate   string        `env:"SIP_TLS_CERT_FILE"                                help:"PEM certificate for SIP_TLS_ADDR"`
	Key           string        `env:"SIP_TLS_KEY_FILE"                                 help:"PEM key of SIP_TLS_CERT_FILE"`
	Advertised    string        `env:"SIP_ADVERTISED_ADDR"                              help:"IP address at which trunks reach this process, for SIP and audio; empty: the address of the first SIP listener, which must not be 0.0.0.0 or ::"`
	RTP           string        `env:"RTP_ADDR"             envDefault:"127.0.0.1"      help:"IP address to bind for audio"`
	PortLow       uint16        `env:"RTP_PORT_LOW"         envDefault:"10000"          help:"lowest UDP port for audio; only even ports are used"`
	PortHigh      uint16        `env:"RTP_PORT_HIGH"        envDefault:"20000"          help:"highest UDP port for audio"`
	Drain         time.Duration `env:"DRAIN_LIMIT"          envDefault:"15s"            help:"how long live SIP calls may continue after SIGTERM, as a duration. Then the process hangs them up, which takes at most 15 s more"`
	AllowNetworks []string      `env:"AGENT_ALLOW_NETWORKS"                             help:"networks, as CIDRs, that the URLs of agents may use in addition to public addresses"`
}

func (c sipConfig) listening() replicas.SIP {
	return replicas.SIP{
		UDP: c.UDP, TCP: c.TCP, TLS: c.TLS, Advertised: c.Advertised,
		RTP: fmt.Sprintf("%s ports %d to %d", c.RTP, c.PortLow, c.PortHigh),
	}
}

// advertisedAddress returns the IP address at which trunks reach this process. The default is the
// address of the first SIP listener.
func (c sipConfig) advertisedAddress() (netip.Addr, error) {
	if c.Advertised != "" {
		ip, err := netip.ParseAddr(c.Advertised)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("read SIP_ADVERTISED_ADDR: %w", err)
		}
		return ip, nil
	}
	host, _, err := net.SplitHostPort(cmp.Or(c.UDP, c.TCP, c.TLS))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read the address of the first SIP listener: %w", err)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.IsUnspecified() {
		return netip.Addr{}, fmt.Errorf("SIP_ADVERTISED_ADDR is missing: the first SIP listener has the address %q, "+
			"which trunks cannot reach. Set the IP address that trunks reach this process at", host)
	}
	return ip, nil
}

type recordingsConfig struct {
	Storage   recordingstore.Storage
	Directory string        `env:"RECORDINGS_DIR"       help:"directory in which recordings are stored, shared by all replicas; required with RECORDINGS_LINK_KEYS"`
	Spool     string        `env:"RECORDINGS_SPOOL_DIR" help:"directory of the recordings of live calls; a new process stores what a killed one left there; empty: .spool in RECORDINGS_DIR, or ringfence-recordings in the temporary directory"`
	Keep      time.Duration `env:"RECORDINGS_KEEP"      help:"how long recordings are stored if the workspace does not set it, as a duration"                                                                                                    envDefault:"720h"`
}
