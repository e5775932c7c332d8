package compose_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// serviceCalls lists for each service the services that it connects to. There are no other
// connections between services.
var serviceCalls = map[string][]string{
	"gateway": {"calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher"},
	"calls":   {"contacts-compliance", "billing-wallet", "dialer"},
	"dialer":  {"contacts-compliance", "billing-wallet"},
}

var (
	addresses = map[string]string{
		"CALLS_URL": "calls", "CONTACTS_URL": "contacts-compliance", "DIALER_URL": "dialer", "WALLET_URL": "billing-wallet", "WEBHOOKS_URL": "webhook-dispatcher",
	}

	// externalURL matches the variables with addresses outside the cluster.
	externalURL = regexp.MustCompile(`^(POSTGRES(_[A-Z]+)?|RECORDINGS_[A-Z0-9_]+|REALTIME|LIVE|SUMMARY|SIM|CONSOLE)_URL$`)
)

func TestServices_ListedConnectionsMatchTheAddressVariables(t *testing.T) {
	t.Parallel()
	for _, name := range services {
		var asks []string
		for variable := range readVariables(t, "services/"+name) {
			peer, ours := addresses[variable]
			if ours {
				asks = append(asks, peer)
			} else if strings.HasSuffix(variable, "_URL") && !externalURL.MatchString(variable) {
				t.Errorf("%s reads %s: add it to addresses or externalURL, and to the network policies", name, variable)
			}
		}
		same(t, name+" reads the addresses of", asks, serviceCalls[name])
	}
}

type networkPolicy struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name                string
		Labels, Annotations map[string]string
	}
	Spec struct {
		PodSelector     selector `yaml:"podSelector"`
		PolicyTypes     []string `yaml:"policyTypes"`
		Ingress, Egress []policyRule
	}
}

type policyRule struct {
	Ports []struct {
		Port, Protocol string
		EndPort        string `yaml:"endPort"`
	}
	From, To []policyPeer
}

type policyPeer struct {
	PodSelector       *selector `yaml:"podSelector"`
	NamespaceSelector *selector `yaml:"namespaceSelector"`
	IPBlock           *struct {
		CIDR   string
		Except []string
	} `yaml:"ipBlock"`
}

type selector struct {
	MatchLabels map[string]any `yaml:"matchLabels"`
}

func policiesIn(t *testing.T, out []byte) map[string]networkPolicy {
	t.Helper()
	found := map[string]networkPolicy{}
	for documents := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var document map[string]any
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		if document["kind"] != "NetworkPolicy" {
			continue
		}
		text, err := yaml.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		var p networkPolicy
		whole := yaml.NewDecoder(bytes.NewReader(text))
		whole.KnownFields(true)
		if err := whole.Decode(&p); err != nil {
			t.Fatalf("a policy has what is not known here: %v\n%s", err, text)
		}
		found[p.Metadata.Name] = p
	}
}

type renderedCharts struct {
	policies map[string]networkPolicy
	objects  map[string]object
	nodes    string // the network of the dialer's nodes, or "" without host networking
}

func rendered(t *testing.T, environment string, args ...string) (h renderedCharts) {
	t.Helper()
	if environment == "default" {
		args = append(requiredArgs(t, "ringfence"), args...)
	} else {
		args = append(environmentArgs(t, environment), args...)
	}
	out := manifests(t, "ringfence", append(args, "--set", "alerts.enabled=false,dashboards.enabled=false")...)
	h = renderedCharts{policies: policiesIn(t, out), objects: objectsIn(t, environment, out)}
	if h.objects["StatefulSet/dialer"].Spec.Template.Spec.HostNetwork {
		h.nodes = "198.51.100.0/24"
	}
	return h
}

func (h renderedCharts) pods() map[string]map[string]any {
	found := map[string]map[string]any{}
	for _, o := range h.objects {
		if labels := o.Spec.Template.Metadata.Labels; labels != nil {
			found[o.Metadata.Name] = labels
		}
	}
	return found
}

// anyPeer is the name of a rule without peers. internetPeer is the name of a rule for every address
// that is not private.
const anyPeer, internetPeer = "anywhere", "the internet"

// formatRules formats each port and peer that the rules allow, as "port peer".
func (h renderedCharts) formatRules(t *testing.T, rules []policyRule) (all []string) {
	t.Helper()
	for _, rule := range rules {
		var peers, ports []string
		for _, peer := range slices.Concat(rule.From, rule.To) {
			peers = append(peers, h.peerName(t, peer))
		}
		for _, p := range rule.Ports {
			if ports = append(ports, p.Protocol+" "+p.Port); p.EndPort != "" {
				ports[len(ports)-1] += "-" + p.EndPort
			}
		}
		if len(peers) == 0 {
			peers = []string{anyPeer}
		}
		if len(ports) == 0 {
			ports = []string{"every port"}
		}
		for _, port := range ports {
			for _, peer := range peers {
				all = append(all, port+", "+peer)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// peerName returns the name of the peer that a rule allows: a workload, a namespace, or a network.
func (h renderedCharts) peerName(t *testing.T, peer policyPeer) string {
	t.Helper()
	switch {
	case peer.IPBlock != nil && (peer.IPBlock.CIDR == "0.0.0.0/0" || peer.IPBlock.CIDR == "::/0"):
		// The internet must not include the addresses of pods and dialer nodes. Test one address of
		// each kind.
		for _, ours := range []string{"10.1.2.3", "fd00::1", strings.TrimSuffix(h.nodes, "0/24") + "7"} {
			at, err := netip.ParseAddr(ours)
			if err == nil && at.Is4() == (peer.IPBlock.CIDR == "0.0.0.0/0") && !slices.ContainsFunc(peer.IPBlock.Except, func(part string) bool { return netip.MustParsePrefix(part).Contains(at) }) {
				return internetPeer + " and " + ours + ", which is ours"
			}
		}
		return internetPeer
	case peer.IPBlock != nil:
		return peer.IPBlock.CIDR
	case peer.NamespaceSelector != nil && peer.PodSelector == nil && len(peer.NamespaceSelector.MatchLabels) == 1:
		return fmt.Sprint("namespace ", peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"])
	case peer.NamespaceSelector == nil && peer.PodSelector != nil:
		var names []string
		for name, labels := range h.pods() {
			if selectorMatches(peer.PodSelector.MatchLabels, labels) {
				names = append(names, name)
			}
		}
		if slices.Sort(names); len(names) > 0 {
			return strings.Join(names, " and ")
		}
		return fmt.Sprint("pods ", peer.PodSelector.MatchLabels)
	}
	return fmt.Sprintf("pods %v of namespaces %v", peer.PodSelector, peer.NamespaceSelector)
}

// serviceNames returns the names of a service in the network policies.
func (h renderedCharts) serviceNames(name string) []string {
	if name == "dialer" && h.nodes != "" { // with host networking, the dialer has the addresses of its nodes
		return []string{name, h.nodes}
	}
	return []string{name}
}

// The policies must allow the calls between services, the servers that every service needs, and the
// documented access from outside. They must allow nothing else.
func TestCharts_NetworkPoliciesAllowOnlyListedConnections(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		environment, clients string
		servers              []string            // servers outside the cluster that every service needs
		database             []string            // containers that connect to the database, including migrations
		outside              map[string][]string // servers outside the cluster that only one service needs
	}{
		{"default", anyPeer, []string{"TCP 9092, anywhere"}, []string{"TCP 5432, anywhere"}, nil},
		{"small", anyPeer, []string{"TCP 9092, anywhere"}, []string{"TCP 5432, anywhere"},
			map[string][]string{"dialer": {"TCP 8090, pods map[app.kubernetes.io/name:simcarrier]"}}},
		{"production", "namespace ingress", []string{"TCP 9092, 192.0.2.16/28"}, []string{"TCP 5432, 192.0.2.0/28", "TCP 6432, 192.0.2.0/28"}, nil},
	} {
		t.Run(row.environment, func(t *testing.T) {
			t.Parallel()
			h := rendered(t, row.environment)
			h.wantOnePolicyEach(t)
			database := append([]string{"UDP 53, namespace kube-system", "TCP 53, namespace kube-system"}, row.database...)
			in, out := map[string][]string{}, map[string][]string{}
			for _, name := range services {
				in[name] = append(in[name], "TCP private, namespace monitoring")
				out[name] = slices.Concat(out[name], database, row.servers, []string{"TCP 4318, namespace monitoring"}, row.outside[name])
				for _, peer := range serviceCalls[name] {
					for _, at := range h.serviceNames(name) {
						in[peer] = append(in[peer], "TCP http, "+at)
					}
					for _, at := range h.serviceNames(peer) {
						out[name] = append(out[name], "TCP 8080, "+at)
					}
					h.wantPeerAddress(t, name, peer)
				}
			}
			// the gateway's /readyz sends requests to /readyz of all services
			for _, peer := range serviceCalls["gateway"] {
				in[peer] = append(in[peer], "TCP private, gateway")
				for _, at := range h.serviceNames(peer) {
					out["gateway"] = append(out["gateway"], "TCP 9090, "+at)
				}
			}
			in["gateway"] = append(in["gateway"], "TCP http, "+row.clients, "TCP admin, pods map[ringfence.dev/operator:true]")
			out["webhook-dispatcher"] = append(out["webhook-dispatcher"], "TCP 1-65535, "+internetPeer)
			out["dialer"] = append(out["dialer"],
				"TCP 443, "+internetPeer, "TCP 1024-65535, "+internetPeer, "UDP 1024-65535, "+internetPeer)
			for _, name := range services {
				same(t, name+" lets in", h.formatRules(t, h.policies[name].Spec.Ingress), in[name])
				same(t, name+" may reach", h.formatRules(t, h.policies[name].Spec.Egress), out[name])
				same(t, name+"'s migration lets in", h.formatRules(t, h.policies[name+"-migrate"].Spec.Ingress), nil)
				same(t, name+"'s migration may reach", h.formatRules(t, h.policies[name+"-migrate"].Spec.Egress), database)
			}
		})
	}
}

// helmTest is the name of the pod of `helm test`, and of the pod's network policy. The tests do not
// count this pod as a workload.
const helmTest = "ringfence-test"

// wantOnePolicyEach checks that exactly one policy selects each workload, and that this policy
// restricts both directions.
func (h renderedCharts) wantOnePolicyEach(t *testing.T) {
	t.Helper()
	pods := h.pods()
	wantEqual(t, "workloads, a service and a migration each", len(pods), 2*len(services))
	policies := maps.Clone(h.policies)
	delete(policies, helmTest)
	wantEqual(t, "policies", len(policies), len(pods))
	for name, labels := range pods {
		var bound []string
		for of, p := range h.policies {
			if selectorMatches(p.Spec.PodSelector.MatchLabels, labels) {
				bound = append(bound, of)
			}
		}
		same(t, name+" is bound by", bound, []string{name})
		same(t, name+"'s policy is about", h.policies[name].Spec.PolicyTypes, []string{"Ingress", "Egress"})
	}
}

// wantPeerAddress checks that the settings of a service contain the address of another service,
// with the port that the policies allow.
func (h renderedCharts) wantPeerAddress(t *testing.T, name, peer string) {
	t.Helper()
	for variable, of := range addresses {
		if of != peer {
			continue
		}
		value := h.objects["ConfigMap/"+name].Data[variable]
		at, err := url.Parse(value)
		if err != nil {
			t.Errorf("%s: %s: %v", name, variable, err)
			continue
		}
		wantEqual(t, name+": host of "+variable, at.Host, peer+":8080")
	}
}

func TestCharts_InternetExcludesTheDialersNodes(t *testing.T) {
	t.Parallel()
	h := rendered(t, "default", "--set", "global.nodes={198.51.100.0/24,2001:db8:1::/48}")
	for _, name := range []string{"webhook-dispatcher", "dialer"} {
		excepted := map[string]string{}
		for _, rule := range h.policies[name].Spec.Egress {
			for _, peer := range rule.To {
				if peer.IPBlock != nil && len(peer.IPBlock.Except) > 0 {
					excepted[peer.IPBlock.CIDR] = strings.Join(peer.IPBlock.Except, " ") + " "
				}
			}
		}
		wantContains(t, name+": exceptions of 0.0.0.0/0", excepted["0.0.0.0/0"], "198.51.100.0/24 ")
		wantContains(t, name+": exceptions of ::/0", excepted["::/0"], "2001:db8:1::/48 ")
		// An API server refuses an IPv6 exception in an IPv4 network.
		wantNotContains(t, name+": exceptions of 0.0.0.0/0", excepted["0.0.0.0/0"], ":")
	}
}

// TestCharts_EmptyPeersAllowNothing checks that an empty list of peers renders no rule, because
// Kubernetes applies a rule without peers to all peers. docs/deploy/helm.md must list the ports
// that are open anyway.
func TestCharts_EmptyPeersAllowNothing(t *testing.T) {
	t.Parallel()
	var none []string
	for _, name := range services {
		for _, list := range []string{"monitoring", "collector.to", "dns", "probedBy"} {
			none = append(none, "--set-json", name+".network."+list+"=[]")
		}
	}
	none = append(none, "--set-json", "gateway.network.operators=[]", "--set-json", "webhook-dispatcher.network.askedBy=[]")
	h := rendered(t, "default", none...)
	open := map[string][]string{}
	for name, p := range h.policies {
		for _, sentence := range slices.Concat(h.formatRules(t, p.Spec.Ingress), h.formatRules(t, p.Spec.Egress)) {
			name = strings.TrimSuffix(name, "-migrate")
			if strings.HasSuffix(sentence, ", "+anyPeer) || strings.HasSuffix(sentence, ", "+internetPeer) {
				open[sentence] = append(open[sentence], name)
			}
		}
	}
	want := map[string][]string{
		"TCP http, anywhere": {"gateway"}, "TCP 5432, anywhere": services, "TCP 9092, anywhere": services,
		"TCP 1-65535, the internet": {"webhook-dispatcher"},
		"TCP 443, the internet":     {"dialer"}, "TCP 1024-65535, the internet": {"dialer"}, "UDP 1024-65535, the internet": {"dialer"},
	}
	same(t, "open are", slices.Collect(maps.Keys(open)), slices.Collect(maps.Keys(want)))
	for what, names := range open {
		slices.Sort(names) // a service and its migration have the same name here, so remove duplicates
		same(t, what+" is open for", slices.Compact(names), want[what])
	}
	page := strings.Join(strings.Fields(strings.Join(lines(t, "docs/deploy/helm.md"), " ")), " ")
	for _, words := range []string{
		"webhook-dispatcher and dialer reach the internet as well, but no private network and none of `global.nodes`.",
		"Postgres and Kafka are permitted at every address until `network.postgres.to` and `network.kafka.to` restrict them",
		"The gateway's `http` accepts every client until `network.clients` restricts it",
	} {
		if !strings.Contains(page, words) {
			t.Errorf("docs/deploy/helm.md does not contain: %s", words)
		}
	}
}
