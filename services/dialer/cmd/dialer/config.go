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

	ContactsURL string `env:"CONTACTS_URL,required" help:"Base URL of contacts-compliance, which checks every call before the dial."`
	WalletURL   string `env:"WALLET_URL,required" help:"Base URL of billing-wallet, which reserves credit for inbound calls with a price."`
	Carrier     string `env:"CARRIER" help:"How calls are placed. sim: through the simulated carrier. sip: over the trunks of /admin/v1/trunks." envDefault:"sim"`
	SimURL      string `env:"SIM_URL" help:"Base URL of the simulated carrier. It is required with CARRIER=sim. With CARRIER=sip, only the calls of test workspaces use it; if it is empty, these calls fail."`
	SimToken    string `env:"SIM_TOKEN" help:"Token of the simulated carrier (its SIMCARRIER_TOKEN)."`
	SIP         sipConfig
	// Realtime configures the operator's model for agents of the kind openai_realtime.
	Realtime realtime.Config
	// Live configures the operator's model for agents of the kind openai_live.
	Live live.Config
	// Summary configures the operator's model for summaries.
	Summary summary.Config

	Recordings recordingsConfig

	Attempts int `env:"DIAL_ATTEMPTS" envDefault:"64" help:"Maximum number of call requests that one process checks and dials at the same time. It does not limit live calls. If it is small, due requests are dialed late."`
	// TrunkChannels and TrunkCallsPerSecond limit the sum of all replicas.
	TrunkChannels       int           `env:"TRUNK_CHANNELS" envDefault:"10000" help:"Maximum number of live calls over trunks, of all replicas together. Set it to the number of channels that you bought. Further requests wait in the queue."`
	TrunkCallsPerSecond int           `env:"TRUNK_CALLS_PER_SECOND" envDefault:"500" help:"Maximum number of new calls per second over trunks, of all replicas together. Further requests wait in the queue."`
	MaxLiveCalls        int           `env:"MAX_LIVE_CALLS" envDefault:"10000" help:"Maximum number of live calls, of all workspaces and replicas together. Further requests wait in the queue."`
	CallsPerSecond      int           `env:"CALLS_PER_SECOND" envDefault:"500" help:"Maximum number of new calls per second, of all workspaces and replicas together. Further requests wait in the queue."`
	CircuitFailures     int           `env:"CIRCUIT_FAILURES" envDefault:"5" help:"Number of consecutive failures after which the circuit breaker of a carrier, trunk or agent opens and permits no calls."`
	CircuitRest         time.Duration `env:"CIRCUIT_REST" envDefault:"1s" help:"How long a circuit breaker stays open the first time. Then it permits one test call. Each failed test call doubles the time, up to 32 times this value."`

	QueueLimit    time.Duration `env:"QUEUE_LIMIT" envDefault:"24h" help:"How long a call request may wait after its due time. If it was not dialed by then, it fails with queue_expired, or with capacity_timeout if no capacity was free. The time in which dialing was paused does not count. It must be shorter than 1440h."`
	CapacityLimit time.Duration `env:"CAPACITY_LIMIT" envDefault:"24h" help:"How long a call request may wait for free capacity after its due time. Then it fails with capacity_timeout. The time in which dialing was paused does not count. It has an effect only if it is shorter than QUEUE_LIMIT."`
	ClaimLease    time.Duration `env:"CLAIM_LEASE" envDefault:"15s" help:"How long a process owns a call request that it claimed. After that time, another process can claim it, for example because the first one was killed. If it is shorter than a slow attempt, two processes work on one request, and only one of them dials."`
	InstanceLease time.Duration `env:"INSTANCE_LEASE" envDefault:"5s" help:"How long after its last heartbeat a process counts as dead. Other processes then end its calls. If it is short, a slow database ends calls of healthy processes. If it is long, the calls of a killed process stay open for this time."`
	RingLimit     time.Duration `env:"RING_LIMIT" envDefault:"60s" help:"How long a phone may ring. Then the call ends with no_answer."`
	LookEvery     time.Duration `env:"LOOK_EVERY" envDefault:"1m" help:"Interval at which the dialer asks the simulated carrier whether each live call still exists, because an end event could be lost. 0 means never. It has no effect on SIP calls."`
	WatchdogGrace time.Duration `env:"WATCHDOG_GRACE" envDefault:"60s" help:"How long the dialer waits for the end event of the carrier after the maximum duration of a call. Then the dialer hangs up and ends the call. If it is short, the dialer ends calls whose end event is only late. If it is long, a call whose end event was lost occupies its channel and its wallet hold for this time."`
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
	UDP           string        `env:"SIP_UDP_ADDR" envDefault:"127.0.0.1:5060" help:"Address host:port that accepts SIP over UDP. If empty, SIP over UDP is off."`
	TCP           string        `env:"SIP_TCP_ADDR" help:"Address host:port that accepts SIP over TCP. If empty, SIP over TCP is off."`
	TLS           string        `env:"SIP_TLS_ADDR" help:"Address host:port that accepts SIP over TLS. If empty, SIP over TLS is off."`
	Certificate   string        `env:"SIP_TLS_CERT_FILE" help:"PEM file of the certificate for SIP_TLS_ADDR."`
	Key           string        `env:"SIP_TLS_KEY_FILE" help:"PEM file of the private key of SIP_TLS_CERT_FILE."`
	Advertised    string        `env:"SIP_ADVERTISED_ADDR" help:"IP address at which trunks reach this process, for SIP and audio. If empty, the address of the first SIP listener is used, which must then not be 0.0.0.0 or ::."`
	RTP           string        `env:"RTP_ADDR" envDefault:"127.0.0.1" help:"IP address at which this process sends and receives audio (RTP)."`
	PortLow       uint16        `env:"RTP_PORT_LOW" envDefault:"10000" help:"Lowest UDP port for audio. Each call uses one even port, which stays bound for 30 s after the call."`
	PortHigh      uint16        `env:"RTP_PORT_HIGH" envDefault:"20000" help:"Highest UDP port for audio. If no port of the range is free, a call cannot be placed."`
	Drain         time.Duration `env:"DRAIN_LIMIT" envDefault:"15s" help:"How long live SIP calls may continue after SIGTERM. Then the process hangs them up, which takes at most 15 s more. Compose or Kubernetes must not kill the process earlier."`
	AllowNetworks []string      `env:"AGENT_ALLOW_NETWORKS" help:"Private networks (CIDR) to which the URLs of agents may lead. If empty, only public addresses are allowed."`
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
	Directory string        `env:"RECORDINGS_DIR" help:"Directory in which recordings are stored. All replicas must share it. It is required with RECORDINGS_LINK_KEYS."`
	Spool     string        `env:"RECORDINGS_SPOOL_DIR" help:"Directory of the recordings of live calls. A new process stores what a killed process left there. If empty, it is .spool in RECORDINGS_DIR, or ringfence-recordings in the temporary directory."`
	Keep      time.Duration `env:"RECORDINGS_KEEP" help:"How long recordings are kept, in workspaces without the setting recordings_days. The default is 30 days." envDefault:"720h"`
}
