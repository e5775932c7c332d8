package stack

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// carrierName is the name of the simulated carrier and of its binary.
const carrierName = "simcarrier"

type service struct {
	name string
	// callers lists the services that can call the internal API of this service. The gateway can
	// call every service.
	callers []string
	// addressVars maps the name of an environment variable to the service whose address the
	// variable contains.
	addressVars map[string]string
}

// services returns the services in the order in which they start. The gateway starts last and stops
// first.
func services() []service {
	return []service{
		{name: "contacts-compliance", callers: []string{"calls", "dialer"}},
		{name: "billing-wallet", callers: []string{"calls", dialer}},
		{name: "dialer", callers: []string{"calls"},
			addressVars: map[string]string{"CONTACTS_URL": "contacts-compliance", "WALLET_URL": "billing-wallet",
				"SIM_URL": carrierName}},
		{name: "calls", addressVars: map[string]string{"CONTACTS_URL": "contacts-compliance",
			"WALLET_URL": "billing-wallet", "DIALER_URL": "dialer"}},
		{name: dispatcher},
		{name: gateway, addressVars: map[string]string{
			"CALLS_URL": "calls", "CONTACTS_URL": "contacts-compliance", "DIALER_URL": "dialer",
			"WALLET_URL": "billing-wallet", "WEBHOOKS_URL": dispatcher,
		}},
	}
}

const (
	gateway    = "gateway"
	dispatcher = "webhook-dispatcher"
	contacts   = "contacts-compliance"
	dialer     = "dialer"
)

func serviceNames() []string {
	var names []string
	for _, svc := range services() {
		names = append(names, svc.name)
	}
	return names
}

func schema(name string) string { return strings.ReplaceAll(name, "-", "_") }

// startServices starts the carrier, then the services behind the gateway, then the dialer, then the
// gateway. They are stopped in reverse order, so the services that the dialer needs still run while
// its last calls end.
func (s *stack) startServices(ctx context.Context) error {
	s.Console.Say("starting the simulated carrier and %d services", len(services())*s.replicas)
	err := s.startRank(ctx, Spec{
		Name: carrierName, Path: filepath.Join(s.Bin, carrierName), Dir: s.Home.Dir,
		Env: s.environment(map[string]string{
			"SIMCARRIER_ADDR": loopback(s.state.Ports[carrierName]),
			"SIMCARRIER_DIR":  s.Home.Path(carrierName),
		}),
	})
	if err != nil {
		return err
	}
	var behind, dialers, front []Spec
	for _, svc := range services() {
		for replica := 1; replica <= s.replicas; replica++ {
			spec, err := s.spec(svc, replica)
			if err != nil {
				return err
			}
			switch svc.name {
			case gateway:
				front = append(front, spec)
			case dialer:
				spec.Drain = s.drainTime()
				dialers = append(dialers, spec)
			default:
				behind = append(behind, spec)
			}
		}
	}
	if err := s.state.Save(); err != nil { // spec created signing keys, which must be saved
		return err
	}
	if err := s.startBalancers(ctx); err != nil {
		return err
	}
	for _, rank := range [][]Spec{behind, dialers, front, s.consoles()} {
		if err := s.startRank(ctx, rank...); err != nil {
			return err
		}
	}
	return nil
}

func (s *stack) spec(svc service, replica int) (Spec, error) {
	seed, _, err := s.state.SigningKey(svc.name)
	if err != nil {
		return Spec{}, err
	}
	var trusted []string
	for _, asker := range append([]string{gateway}, svc.callers...) {
		_, public, err := s.state.SigningKey(asker)
		if err != nil {
			return Spec{}, err
		}
		trusted = append(trusted, asker+"="+public)
	}
	urls, err := s.schemaURLs(svc.name)
	if err != nil {
		return Spec{}, err
	}
	set := map[string]string{
		"HTTP_ADDR":         s.replicaAddr(svc.name, replica),
		"PRIVATE_ADDR":      loopback(s.state.Ports[privatePort(svc.name, replica)]),
		"KAFKA_BROKERS":     clientAddress(allClients, "kafka", s.brokers),
		"KAFKA_INSTANCE_ID": fmt.Sprintf("%s-%d", svc.name, replica),
		"SIGNING_KEY":       seed,
		"TRUSTED_KEYS":      strings.Join(trusted, ","),
	}
	maps.Copy(set, urls)
	for variable, peer := range svc.addressVars {
		set[variable] = "http://" + clientAddress(svc.name, peer, loopback(s.state.Ports[peer]))
	}
	switch svc.name {
	case gateway:
		set["ADMIN_ADDR"] = s.replicaAddr(adminListener, replica)
		set["CONSOLE_ADDR"] = s.replicaAddr(consoleListener, replica)
		set["CONSOLE_CODES"] = "true"
		set["CONSOLE_URL"] = s.consoleURL()
		set["API_KEY_PEPPER"] = s.state.Pepper
		set["OPERATOR_TOKENS"] = "local=" + s.state.AdminToken
		set["READY_URLS"] = s.readyURLs()
	case contacts:
		set["CONSENT_KEYS"] = cmp.Or(os.Getenv("CONSENT_KEYS"), "local="+s.state.ConsentKey)
		set["CONSENT_HEAD_LOG"] = s.Home.Path("consent-heads.log")
	case dialer:
		set["SEALING_KEYS"] = cmp.Or(os.Getenv("SEALING_KEYS"), "local="+s.state.SealingKey)
		set["DRAIN_LIMIT"] = cmp.Or(os.Getenv("DRAIN_LIMIT"), defaultDrain.String())
		for _, variable := range []string{"SIP_UDP_ADDR", "SIP_TCP_ADDR", "SIP_TLS_ADDR"} {
			if address := os.Getenv(variable); replica > 1 && address != "" {
				set[variable] = portAfter(address, replica-1)
			}
		}
	case dispatcher:
		set["SEALING_KEYS"] = cmp.Or(os.Getenv("SEALING_KEYS"), "local="+s.state.SealingKey)
		set["WEBHOOK_EXTRA_CA_FILE"] = s.caFile
		set["WEBHOOK_ALLOW_NETWORKS"] = "127.0.0.0/8,::1/128"
	}
	if os.Getenv("RECORDINGS_S3_URL") == "" && (svc.name == dialer || svc.name == "calls") {
		set["RECORDINGS_LINK_KEYS"] = s.state.LinkKey
		set["RECORDINGS_LINK_URL"] = s.baseURL()
		set["RECORDINGS_DIR"] = s.Home.Path("recordings")
	}
	name := svc.name
	if replica > 1 {
		name = fmt.Sprintf("%s-%d", svc.name, replica)
	}
	return Spec{Name: name, Path: filepath.Join(s.Bin, svc.name), Dir: s.Home.Dir, Env: s.environment(set),
		Mute: routineLines(svc.name)}, nil
}

// portAfter returns the address with a port that is higher by n, because each replica needs a
// different SIP address. Port 0, which means any free port, is not changed.
func portAfter(address string, n int) string {
	host, text, err := net.SplitHostPort(address)
	port, fault := strconv.Atoi(text)
	if err != nil || fault != nil || port == 0 {
		return address
	}
	return net.JoinHostPort(host, strconv.Itoa(port+n))
}

// adminListener is the name of the gateway's listener for operators.
const adminListener = "admin"

// listeners returns the names of all HTTP listeners and, for each, the service that opens it.
func listeners() map[string]string {
	all := map[string]string{adminListener: gateway, consoleListener: gateway, consoleService: consoleService}
	for _, name := range serviceNames() {
		all[name] = name
	}
	return all
}

// listenerPort returns the port at which clients reach a listener.
func (s *stack) listenerPort(name string) int {
	switch name {
	case gateway:
		return basePort()
	case adminListener:
		return adminPort()
	}
	return s.state.Ports[name]
}

// replicaAddr returns the address at which a replica opens a listener. If there are several
// replicas, each has a different port behind a balancer.
func (s *stack) replicaAddr(name string, replica int) string {
	if s.replicas == 1 {
		return loopback(s.listenerPort(name))
	}
	return loopback(s.state.Ports[httpPort(name, replica)])
}

// startBalancers opens the ports of all listeners if there are several replicas. stopRanks stops
// the balancers.
func (s *stack) startBalancers(ctx context.Context) error {
	if s.replicas == 1 {
		return nil
	}
	for listener, service := range listeners() {
		var replicas []Replica
		for replica := 1; replica <= s.replicas; replica++ {
			replicas = append(replicas, Replica{
				Addr:  s.replicaAddr(listener, replica),
				Probe: "http://" + loopback(s.state.Ports[privatePort(service, replica)]) + "/readyz",
			})
		}
		b, err := Listen(ctx, loopback(s.listenerPort(listener)), replicas)
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		s.stopBalancers = append(s.stopBalancers, stop)
		go b.Run(running)
	}
	return nil
}

// routineLines matches the log lines that the console hides unless LOG_LEVEL is set. For the
// gateway, these are successful reads. For the other services, these are all successful requests,
// because the gateway has already logged them.
func routineLines(name string) *regexp.Regexp {
	if os.Getenv("LOG_LEVEL") != "" {
		return nil
	}
	if name == gateway {
		return regexp.MustCompile(`^\S+ INFO +request method=(GET|HEAD) route=\S+ status=[23]`)
	}
	return regexp.MustCompile(`^\S+ INFO +request method=\S+ route=\S+ status=[23]`)
}

func (s *stack) readyURLs() string {
	var urls []string
	for _, svc := range services() {
		for replica := 1; replica <= s.replicas && svc.name != gateway; replica++ {
			urls = append(urls, svc.name+"=http://"+loopback(s.state.Ports[privatePort(svc.name, replica)])+"/readyz")
		}
	}
	return strings.Join(urls, ",")
}

// environment returns the environment of this process with the variables in set. It does not pass
// on POSTGRES_URL and KAFKA_BROKERS, because a service must not get the URL of a superuser.
func (s *stack) environment(set map[string]string) []string {
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		_, ours := set[name]
		// the services must not use TLS, because the URLs in demo.json begin with http
		tls := name == "TLS_CERT_FILE" || name == "TLS_KEY_FILE"
		return ours || tls || name == "POSTGRES_URL" || name == "POSTGRES_MIGRATE_URL" || name == "KAFKA_BROKERS"
	})
	if os.Getenv("LOG_FORMAT") == "" {
		env = append(env, "LOG_FORMAT=text")
	}
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return env
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
