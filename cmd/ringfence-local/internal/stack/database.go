package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caarlos0/env/v11"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
)

// databaseName is the name of the database in the stack's own Postgres.
const databaseName = "ringfence"

// startPostgres starts Postgres, unless POSTGRES_URL names a server.
func (s *stack) startPostgres(ctx context.Context) error {
	if s.postgresURL = os.Getenv("POSTGRES_URL"); s.postgresURL != "" {
		if there, err := url.Parse(s.postgresURL); err != nil || there.Host == "" {
			return errPostgresURL
		}
		s.Console.Say("using the Postgres of POSTGRES_URL")
		return nil
	}
	server, err := newPostgres(ctx, s.Home.Dir, "", s.Console.Say)
	if err != nil {
		return err
	}
	server.Port, server.Password, server.Durable = s.state.Ports["postgres"], s.state.PostgresPassword, true
	server.Connections = 100 + 100*s.replicas
	switch aside, err := server.CheckHome(ctx, s.Home.Dir); {
	case err != nil:
		return err
	case aside != "":
		s.Console.Say("the database of a deleted home was moved to %s", aside)
	}
	s.Console.Say("starting Postgres %d from %s", server.Binaries.Major, server.Binaries.Dir)
	if err := server.Init(ctx, s.Starter); err != nil {
		return err
	}
	if err := s.startRank(ctx, server.Spec()); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := server.Await(ready, databaseName); err != nil {
		return fmt.Errorf("%w; its output is above", err)
	}
	s.postgresURL = server.URL(databaseName)
	return nil
}

// newPostgres returns a server without port and password, which the caller sets. data is the parent
// directory of the cluster. If data is empty, the cluster is created beside the downloads in the
// home.
func newPostgres(ctx context.Context, home, data string, note func(string, ...any)) (*Server, error) {
	account, err := ChooseAccount()
	if err != nil {
		return nil, err
	}
	place, err := account.Place(home)
	if err != nil {
		return nil, err
	}
	if err := CheckRoom(place); err != nil {
		return nil, err
	}
	if data == "" {
		data = place
	}
	data = filepath.Join(data, "postgres")
	source := Source{Account: account, Downloads: place, Note: note}
	if made, err := os.ReadFile(filepath.Join(data, "PG_VERSION")); err == nil {
		source.Major, _ = strconv.Atoi(strings.TrimSpace(string(made)))
	}
	binaries, err := source.Find(ctx)
	if err != nil {
		return nil, err
	}
	return &Server{Binaries: binaries, Account: account, Data: data}, nil
}

// startBroker starts the embedded broker or Apache Kafka. If KAFKA_BROKERS is set, it starts no
// broker.
func (s *stack) startBroker(ctx context.Context) error {
	if s.brokers = os.Getenv("KAFKA_BROKERS"); s.brokers != "" {
		s.Console.Say("using the Kafka of KAFKA_BROKERS")
		return nil
	}
	s.brokers = loopback(s.state.Ports["kafka"])
	at := func(dir string) []string {
		return []string{"--dir", s.Home.Path(dir), "--port", strconv.Itoa(s.state.Ports["kafka"]), "--advertise",
			clientAddress(allClients, "kafka", s.brokers)}
	}
	spec := Spec{Name: "broker", Path: s.Self, Dir: s.Home.Dir, Env: s.environment(nil), Args: append([]string{"broker"}, at("broker")...)}
	switch chosen := os.Getenv("RINGFENCE_BROKER"); chosen {
	case "", "embedded":
	case "apache":
		spec.Path, spec.Args = filepath.Join(s.Bin, "ringfence-kafka"), append([]string{"run"}, at("apachekafka")...)
		if _, err := os.Stat(spec.Path); err != nil {
			return fmt.Errorf("RINGFENCE_BROKER is apache and %s does not exist: run `make kafka-fetch`", spec.Path)
		}
		s.Console.Say("starting Apache Kafka, which takes some seconds")
	default:
		return fmt.Errorf("RINGFENCE_BROKER is %q: set it to embedded or apache", chosen)
	}
	return s.startRank(ctx, spec)
}

// createSchemas creates, in parallel, the topics and the schemas with their roles.
func (s *stack) createSchemas(ctx context.Context) error {
	var schemas, topics error
	var both sync.WaitGroup
	both.Go(func() {
		for _, name := range serviceNames() {
			owner, app := s.state.Schema(schema(name))
			if schemas = pg.Provision(ctx, s.postgresURL, schema(name), owner, app); schemas != nil {
				return
			}
		}
	})
	both.Go(func() { topics = s.ensureTopics(ctx) })
	both.Wait()
	if schemas != nil {
		return fmt.Errorf("%w (POSTGRES_URL, if it is set, must name a superuser)", schemas)
	}
	if topics != nil {
		return topics
	}
	return s.state.Save()
}

// ensureTopics waits until a broker responds and creates the missing topics.
func (s *stack) ensureTopics(ctx context.Context) error {
	timeout, remedy := time.Minute, "start it, or unset KAFKA_BROKERS to use the embedded one"
	if os.Getenv("KAFKA_BROKERS") == "" {
		timeout, remedy = readyTimeout, "the machine is too busy to start it, or its output above has the reason"
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	brokers := strings.Split(s.brokers, ",")
	for !answers(ctx, brokers) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("no Kafka broker responds at %s after %s: %s", s.brokers, timeout, remedy)
		case <-time.After(20 * time.Millisecond):
		}
	}
	cfg, err := brokerConfig(brokers)
	if err != nil {
		return err
	}
	client, err := kafka.NewClient(cfg, "ringfence-local", nil)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		err := kafka.EnsureTopics(ctx, client, kafka.Catalogue())
		var fault *kafka.TopicsError
		if err == nil {
			return nil
		}
		if errors.As(err, &fault) || ctx.Err() != nil {
			return fmt.Errorf("create the topics at %s: %w", s.brokers, err)
		}
		select { // a broker opens its port before it can serve requests
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// brokerConfig returns the client configuration. For the brokers of KAFKA_BROKERS it reads the same
// variables as the services. For the stack's own broker it uses no TLS.
func brokerConfig(brokers []string) (kafka.Config, error) {
	if os.Getenv("KAFKA_BROKERS") == "" {
		return kafka.Config{Brokers: brokers}, nil
	}
	cfg, err := env.ParseAs[kafka.Config]()
	if err != nil {
		return kafka.Config{}, fmt.Errorf("read the settings for Kafka: %w", err)
	}
	return cfg, nil
}

func answers(ctx context.Context, addresses []string) bool {
	return slices.ContainsFunc(addresses, func(address string) bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

var errPostgresURL = errors.New("POSTGRES_URL is not a URL of the form postgres://user:password@host:port/database: " +
	"set it to one, or unset it")

// schemaURLs returns the environment variables with which a service connects to its schema as owner
// and as application role. If RINGFENCE_POOLER is the address of a connection pooler, POSTGRES_URL
// uses the pooler, and POSTGRES_DIRECT_URL does not.
func (s *stack) schemaURLs(name string) (map[string]string, error) {
	base, err := url.Parse(s.postgresURL)
	if err != nil || base.Host == "" {
		return nil, errPostgresURL
	}
	ownerPassword, appPassword := s.state.Schema(schema(name))
	as := func(role, password, host string) string {
		u := *base
		u.Host = host
		u.User = url.UserPassword(role, password)
		return u.String()
	}
	direct := clientAddress(name, "postgres", base.Host)
	app, owner := pg.AppRole(schema(name)), pg.OwnerRole(schema(name))
	urls := map[string]string{"POSTGRES_URL": as(app, appPassword, direct), "POSTGRES_MIGRATE_URL": as(owner, ownerPassword, direct)}
	if pooler := os.Getenv("RINGFENCE_POOLER"); pooler != "" {
		urls["POSTGRES_URL"], urls["POSTGRES_DIRECT_URL"] = as(app, appPassword, pooler), urls["POSTGRES_URL"]
	}
	return urls, nil
}
