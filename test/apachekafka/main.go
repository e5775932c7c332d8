// Command apachekafka downloads a pinned Apache Kafka as Maven artifacts and runs one broker on
// this machine without Docker. The broker uses KRaft with a combined controller, listens on
// loopback, and needs little memory. It is for tests, benchmarks and `make kafka`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alecthomas/kong"
)

type commands struct {
	Jars  string   `env:"RINGFENCE_KAFKA_JARS" help:"Where the fetched files lie (RINGFENCE_KAFKA_JARS); empty: apachekafka, beside this program."`
	JVM   string   `env:"RINGFENCE_KAFKA_JVM" default:"${jvm}" help:"Options of the Java machine (RINGFENCE_KAFKA_JVM)."`
	Fetch struct{} `cmd:"" help:"Fetch Apache Kafka once and exit: 0 when it is there."`
	Up    struct {
		Port int `help:"The port on 127.0.0.1; 0: a free one."`
	} `cmd:"" help:"Run a broker with a temporary folder until Ctrl-C or SIGTERM, and print its address."`
	Run struct {
		Dir       string   `required:"" help:"Where the records are kept."`
		Port      int      `required:"" help:"The port on 127.0.0.1."`
		Advertise string   `help:"Address that clients are directed to, host:port. Empty means the listening port on this machine."`
		Property  []string `sep:"none" help:"A line of server.properties, after ours."`
		Scram     []string `sep:"none" help:"A user known from the beginning, as StorageTool's --add-scram takes it."`
	} `cmd:"" help:"Replace this process with a broker that uses a folder, so that signals reach the broker."`
	With struct {
		Command []string `arg:"" passthrough:"" help:"The command, after --."`
	} `cmd:"" help:"Run a command with KAFKA_BROKERS naming a throw-away broker."`
}

func main() {
	var line commands
	parsed := kong.Parse(&line, kong.Name("ringfence-kafka"), kong.UsageOnError(), kong.Vars{"jvm": smallHeap},
		kong.Description("Apache Kafka on this machine, for tests."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := line.do(ctx, parsed.Command())
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ringfence-kafka:", err)
		os.Exit(1)
	}
}

func (c *commands) do(ctx context.Context, command string) error {
	if c.Jars == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		c.Jars = filepath.Join(filepath.Dir(self), "apachekafka")
	}
	kept := downloads{dir: c.Jars}
	if command == "fetch" {
		return kept.fetch(ctx)
	}
	if err := kept.checkDownloads(); err != nil {
		return err
	}
	if command == "run" {
		b := broker{
			downloads: kept, jvm: c.JVM, dir: c.Run.Dir, port: c.Run.Port, advertise: c.Run.Advertise,
			properties: c.Run.Property, scram: c.Run.Scram,
		}
		return b.execBroker(ctx)
	}
	t, err := start(ctx, kept, c.JVM, c.Up.Port)
	if err != nil {
		return err
	}
	defer t.stop()
	if command == "up" {
		fmt.Printf("Apache Kafka %s is ready. KAFKA_BROKERS=%s\n", version, t.address)
		return t.awaitEnd(ctx)
	}
	return t.runCommand(ctx, c.With.Command)
}
