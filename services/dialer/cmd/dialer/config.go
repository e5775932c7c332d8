package main

import (
	"time"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
)

// Config is the environment.
type Config struct {
	HTTP      httpserver.Config
	Postgres  pg.Config
	Kafka     kafka.Config
	Trust     trust.Config
	Telemetry telemetry.Config

	// ContactsURL is contacts-compliance, which is asked before every dial.
	ContactsURL string `env:"CONTACTS_URL,required" help:"base URL of contacts-compliance, asked before every dial"`
	// SimURL is the simulated carrier.
	SimURL string `env:"SIM_URL,required" help:"base URL of the simulated carrier"`

	// Attempts is how many requests this process works on at once.
	Attempts int `env:"DIAL_ATTEMPTS" envDefault:"64" help:"requests this process works on at once"`
	// TrunkChannels and TrunkCallsPerSecond bound the trunk over all replicas.
	TrunkChannels       int `env:"TRUNK_CHANNELS" envDefault:"10000" help:"live calls the trunk takes, over all replicas"`
	TrunkCallsPerSecond int `env:"TRUNK_CALLS_PER_SECOND" envDefault:"500" help:"originations a second the trunk takes, over all replicas"`

	// QueueLimit ends a request that was never dialled, counted from its time.
	QueueLimit time.Duration `env:"QUEUE_LIMIT" envDefault:"24h" help:"how long past its time a request that was never dialled is kept, as a duration"`
	// ClaimLease is how long a request that was taken from the queue is one process's alone.
	ClaimLease time.Duration `env:"CLAIM_LEASE" envDefault:"15s" help:"how long a request taken from the queue belongs to one process, as a duration"`
	// InstanceLease is how long after its last sign of life a process counts as gone.
	InstanceLease time.Duration `env:"INSTANCE_LEASE" envDefault:"5s" help:"how long after its last sign of life a process counts as gone, as a duration"`
	// RingLimit is how long we let it ring.
	RingLimit time.Duration `env:"RING_LIMIT" envDefault:"60s" help:"how long it may ring, as a duration"`
	// WatchdogGrace is how long after its longest time a call is ended without the carrier's word.
	WatchdogGrace time.Duration `env:"WATCHDOG_GRACE" envDefault:"60s" help:"how long past its longest time a call is ended without the carrier's word, as a duration"`
}
