// Command ringfence-local runs Ringfence on this machine. `make run` calls `up`. `service` runs a
// command of a service's binary with the running stack. `broker` runs the embedded Kafka, and
// `with-postgres` runs a command with a temporary database; tests use both. The program is not for
// production.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"ringfence.dev/cmd/ringfence-local/internal/stack"
)

type commands struct {
	Up struct {
	} `cmd:"" default:"1" help:"Run the whole stack in the foreground until Ctrl-C or SIGTERM. This is the default command."`
	Broker struct {
		Dir       string `required:"" help:"Directory in which the records are stored."`
		Port      int    `required:"" help:"Port on 127.0.0.1."`
		Advertise string `help:"Address (host:port) that the broker sends to clients. Default: the port on this machine."`
	} `cmd:"" help:"Run only the embedded Kafka."`
	Service struct {
		Name    string   `arg:"" help:"Name of the service."`
		Command []string `arg:"" passthrough:"" help:"Command of the service's binary: replay, migrate, verify, …"`
	} `cmd:"" help:"Run a command of a service's binary with the environment that the service has in the running stack."`
	WithPostgres struct {
		Durable bool     `help:"Write commits to the disk."`
		Command []string `arg:"" passthrough:"" help:"Command to run, after --."`
	} `cmd:"" help:"Start a temporary Postgres and run a command with its URL in RINGFENCE_TEST_POSTGRES."`
}

// description is the text of --help above the commands.
const description = `Runs Ringfence on this machine. Environment variables:

    RINGFENCE_HOME          folder of all state; one stack per folder (default .ringfence)

    RINGFENCE_PORT          port of the public API (default 8080)

    RINGFENCE_ADMIN_PORT    port of the operator API (default 8081)

    RINGFENCE_SIM_PORT      port of the simulated carrier (default: chosen at the first start)

    RINGFENCE_REPLICAS      replicas of each service (default 1)

    RINGFENCE_RESTART_PAUSE longest pause before a dead process is started again (default 5s)

    RINGFENCE_BROKER        embedded (default), or apache: run Apache Kafka, after make kafka-fetch

    RINGFENCE_POOLER        host:port of a PgBouncer in front of POSTGRES_URL

    POSTGRES_URL            superuser's URL of another Postgres

    KAFKA_BROKERS           host:port list of another Kafka cluster

    PG_BINDIR               folder of the Postgres programs

    SIMULATOR_TIME_SCALE    factor of every simulated duration; 0 makes calls immediate (default 1)`

func main() {
	var line commands
	parsed := kong.Parse(&line, kong.Name("ringfence-local"), kong.UsageOnError(), kong.Description(description))
	ctx, hurry, kill := signals()
	command, _, _ := strings.Cut(parsed.Command(), " ")
	var err error
	switch command {
	case "broker":
		err = stack.Run(ctx, stack.Config{Dir: line.Broker.Dir, Port: line.Broker.Port, Advertise: line.Broker.Advertise})
	case "service":
		err = service(ctx, line.Service.Name, line.Service.Command)
	case "with-postgres":
		err = stack.WithPostgres(ctx, hurry, line.WithPostgres.Command, line.WithPostgres.Durable)
	default:
		err = up(ctx, hurry, kill)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && (command == "with-postgres" || command == "service") {
		os.Exit(max(exit.ExitCode(), 1))
	}
	if err != nil {
		// Print every error as one line.
		fmt.Fprintln(os.Stderr, "ringfence-local:", strings.Join(strings.Fields(explain(err).Error()), " "))
		os.Exit(1)
	}
}

func up(ctx, hurry, kill context.Context) error {
	home, err := stack.OpenHome()
	if err != nil {
		return err
	}
	defer home.Close()
	self, bin, err := programs()
	if err != nil {
		return err
	}
	return stack.Up(ctx, hurry, kill, stack.Options{
		Home: home, Bin: bin, Self: self, Console: stack.NewConsole(os.Stdout), Starter: stack.NewStarter(),
	})
}

func service(ctx context.Context, name string, command []string) error {
	home, err := stack.FindHome()
	if err != nil {
		return err
	}
	_, bin, err := programs()
	if err != nil {
		return err
	}
	return stack.Command(ctx, stack.Options{Home: &stack.Home{Dir: home}, Bin: bin}, name, command...)
}

// programs returns the path of this program and the folder of the service binaries. The folder is
// derived from the name by which this program was called, which can be a symbolic link.
func programs() (self, bin string, err error) {
	if self, err = os.Executable(); err != nil {
		return "", "", fmt.Errorf("find this program: %w", err)
	}
	bin = filepath.Dir(self)
	if called := os.Args[0]; strings.ContainsRune(called, filepath.Separator) {
		if bin, err = filepath.Abs(filepath.Dir(called)); err != nil {
			return "", "", fmt.Errorf("find the services: %w", err)
		}
	}
	return self, bin, nil
}

// signals returns three contexts. The first signal ends ctx, the second ends hurry, and the third
// ends kill.
func signals() (ctx, hurry, kill context.Context) {
	ctx, stopped := context.WithCancel(context.Background())
	hurry, hurried := context.WithCancel(context.Background())
	kill, killed := context.WithCancel(context.Background())
	came := make(chan os.Signal, 4)
	signal.Notify(came, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for _, end := range []context.CancelFunc{stopped, hurried, killed} {
			<-came
			end()
		}
	}()
	return ctx, hurry, kill
}

// explain adds the remedy to errors of the operating system.
func explain(err error) error {
	switch {
	case strings.Contains(err.Error(), "RINGFENCE_HOME"): // the message already contains a remedy
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: free some space, or set RINGFENCE_HOME to a directory on another disk", err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w: set RINGFENCE_HOME to a directory that you can write", err)
	}
	return err
}
