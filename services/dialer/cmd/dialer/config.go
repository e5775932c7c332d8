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
	"ringfence.dev/services/dialer/internal/calls"
	"ringfence.dev/services/dialer/internal/dial"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/replicas"
	"ringfence.dev/services/dialer/internal/summary"
)

// Config is the environment.
type Config struct {
	app.Config
	Sealing seal.Config

	// ContactsURL is contacts-compliance, which is asked before every dial.
	ContactsURL string `env:"CONTACTS_URL,required" help:"base URL of contacts-compliance, asked before every dial"`
	// Carrier is what calls go over.
	Carrier string `env:"CARRIER" envDefault:"sim" help:"what calls go over: sim (the simulated carrier) or sip (the trunks under /admin/v1/trunks)"`
	// SimURL is the simulated carrier.
	SimURL string `env:"SIM_URL" help:"base URL of the simulated carrier; required with CARRIER=sim"`
	SIP    sipConfig
	// Realtime is the operator's own model.
	Realtime realtime.Config
	// Live is the operator's own model for openai_live agents, which are experimental.
	Live live.Config
	// Summary is the operator's own endpoint for summaries.
	Summary summary.Config

	// Recordings is where recordings of calls lie.
	Recordings recordingsConfig

	// Attempts is how many requests this process works on at once.
	Attempts int `env:"DIAL_ATTEMPTS" envDefault:"64" help:"requests this process works on at once"`
	// TrunkChannels and TrunkCallsPerSecond bound the trunk over all replicas.
	TrunkChannels       int `env:"TRUNK_CHANNELS" envDefault:"10000" help:"live calls the trunk takes, over all replicas"`
	TrunkCallsPerSecond int `env:"TRUNK_CALLS_PER_SECOND" envDefault:"500" help:"originations a second the trunk takes, over all replicas"`
	// MaxLiveCalls and CallsPerSecond bound all trunks together.
	MaxLiveCalls   int `env:"MAX_LIVE_CALLS" envDefault:"10000" help:"live calls of all workspaces over all trunks and replicas"`
	CallsPerSecond int `env:"CALLS_PER_SECOND" envDefault:"500" help:"originations a second of all workspaces over all trunks and replicas"`
	// CircuitFailures and CircuitRest are the trunk's circuit breaker.
	CircuitFailures int           `env:"CIRCUIT_FAILURES" envDefault:"5" help:"failures of the carrier in a row after which this process stops asking it for a while"`
	CircuitRest     time.Duration `env:"CIRCUIT_REST" envDefault:"1s" help:"how long a failing carrier is left alone at first, as a duration; doubled by each probe that fails, up to 32 times"`

	// QueueLimit ends a request that was not dialed, counted from its due time.
	QueueLimit time.Duration `env:"QUEUE_LIMIT" envDefault:"24h" help:"how long after its due time a request that was not dialed stays queued, as a duration shorter than 1440h"`
	// CapacityLimit ends a request that found no room.
	CapacityLimit time.Duration `env:"CAPACITY_LIMIT" envDefault:"24h" help:"how long a request that is due waits for room under the limits, as a duration; what QUEUE_LIMIT ends is told apart as well"`
	// ClaimLease is how long a request that was taken from the queue is one process's alone.
	ClaimLease time.Duration `env:"CLAIM_LEASE" envDefault:"15s" help:"how long a request taken from the queue belongs to one process, as a duration"`
	// InstanceLease is how long after its last sign of life a process counts as gone.
	InstanceLease time.Duration `env:"INSTANCE_LEASE" envDefault:"5s" help:"how long after its last sign of life a process counts as gone, as a duration"`
	// RingLimit is how long we let it ring.
	RingLimit time.Duration `env:"RING_LIMIT" envDefault:"60s" help:"how long it may ring, as a duration"`
	// LookEvery is how often a carrier with a feed is asked about live calls.
	LookEvery time.Duration `env:"LOOK_EVERY" envDefault:"1m" help:"how often the simulated carrier is asked about each live call, in case its events left out the end, as a duration; 0: never"`
	// WatchdogGrace is how long after its longest time a call is ended without the carrier's word.
	WatchdogGrace time.Duration `env:"WATCHDOG_GRACE" envDefault:"60s" help:"how long past its longest time a call is ended without the carrier's word, as a duration"`
}

// check returns the faults of the configuration.
func (c Config) check() error {
	// A request can arrive again after its row was deleted. It is then past QUEUE_LIMIT, so that it is not dialed again
	// (ADR 12).
	if c.QueueLimit <= 0 || c.QueueLimit >= calls.RowPeriod {
		return fmt.Errorf("QUEUE_LIMIT (%s) must be longer than zero and shorter than %gh: the rows of ended requests are "+
			"deleted after that time, and a request that arrives again would be dialed twice. Set a shorter QUEUE_LIMIT",
			c.QueueLimit, calls.RowPeriod.Hours())
	}
	return nil
}

// models returns the models that the configuration names, by variable.
func (c Config) models() []agent.ConfiguredModel {
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
	if c.Carrier == "sip" { // each trunk has a circuit
		failures = 0
	}
	return dial.Limits{
		Attempts: c.Attempts, Failures: failures, CircuitRest: c.CircuitRest,
		Overall: dialqueue.Limit{Live: c.MaxLiveCalls, PerSecond: c.CallsPerSecond},
		OfTrunk: ofTrunk, Agents: circuits, MayDial: mayDial,
	}
}

// sipConfig is where SIP and audio come and go.
type sipConfig struct {
	UDP string `env:"SIP_UDP_ADDR" envDefault:"127.0.0.1:5060" help:"where SIP is listened for over UDP; empty: nowhere"`
	TCP string `env:"SIP_TCP_ADDR" help:"where SIP is listened for over TCP; empty: nowhere"`
	TLS string `env:"SIP_TLS_ADDR" help:"where SIP is listened for over TLS; empty: nowhere"`
	// Certificate is ours.
	Certificate string `env:"SIP_TLS_CERT_FILE" help:"PEM certificate for SIP_TLS_ADDR"`
	Key         string `env:"SIP_TLS_KEY_FILE" help:"its PEM key"`
	// Advertised is how trunks reach us.
	Advertised string `env:"SIP_ADVERTISED_ADDR" help:"IP address that trunks reach this process at, for SIP and audio; empty: the address of the first SIP listener, which must then be an IP address other than 0.0.0.0 and ::"`
	RTP        string `env:"RTP_ADDR" envDefault:"127.0.0.1" help:"IP address that audio is bound to"`
	PortLow    uint16 `env:"RTP_PORT_LOW" envDefault:"10000" help:"lowest UDP port for audio; the even ones are used"`
	PortHigh   uint16 `env:"RTP_PORT_HIGH" envDefault:"20000" help:"highest UDP port for audio"`
	// Drain is how long calls may go on after the process was told to stop.
	Drain time.Duration `env:"DRAIN_LIMIT" envDefault:"15s" help:"how long live SIP calls may continue after SIGTERM, as a duration. Then the process hangs them up, which takes at most 15 s more"`
	// Guard of the URLs that agents name.
	AllowNetworks []string `env:"AGENT_ALLOW_NETWORKS" help:"networks, as CIDRs, that an agent's own URL may lead to besides public addresses"`
}

// listening returns where this process listens.
func (c sipConfig) listening() replicas.SIP {
	return replicas.SIP{
		UDP: c.UDP, TCP: c.TCP, TLS: c.TLS, Advertised: c.Advertised,
		RTP: fmt.Sprintf("%s ports %d to %d", c.RTP, c.PortLow, c.PortHigh),
	}
}

// advertised returns the IP address that trunks reach this process at. If it is not set, it is the address
// of the first SIP listener.
func (c sipConfig) advertised() (netip.Addr, error) {
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

// recordingsConfig is where recordings lie, and are written before.
type recordingsConfig struct {
	Storage recordingstore.Storage
	// Directory is the storage with RECORDINGS_LINK_KEYS.
	Directory string        `env:"RECORDINGS_DIR" help:"with RECORDINGS_LINK_KEYS: the directory that recordings lie in, the same for all replicas"`
	Spool     string        `env:"RECORDINGS_SPOOL_DIR" help:"where calls are recorded while they go on; what a killed process left there is brought into the storage by the next one; empty: .spool in RECORDINGS_DIR, or ringfence-recordings in the directory for temporary files"`
	Keep      time.Duration `env:"RECORDINGS_KEEP" envDefault:"720h" help:"how long recordings are kept where their workspace says nothing, as a duration"`
}
