package compose_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// object contains the fields of a rendered Kubernetes object that the tests read.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels map[string]any
	}
	Data map[string]string
	Spec struct {
		// Selector is the label selector of a Service, or of a workload under matchLabels.
		Selector    map[string]any
		ServiceName string `yaml:"serviceName"`
		// PublishesUnready is true for a Service whose name also resolves to replicas that are not
		// ready.
		PublishesUnready bool `yaml:"publishNotReadyAddresses"`
		Ports            []servicePort
		Claims           []struct {
			Metadata struct{ Name string }
		} `yaml:"volumeClaimTemplates"`
		// Containers are the containers of a Pod.
		Containers []container
		Template   struct {
			Metadata struct{ Labels map[string]any }
			Spec     struct {
				ServiceAccountName string      `yaml:"serviceAccountName"`
				HostNetwork        bool        `yaml:"hostNetwork"`
				InitContainers     []container `yaml:"initContainers"`
				Containers         []container
			}
		}
	}
}

type container struct {
	Name, Image string
	Args        []string
	Ports       []openPort
	Startup     struct {
		Period   int `yaml:"periodSeconds"`
		Failures int `yaml:"failureThreshold"`
	} `yaml:"startupProbe"`
	Liveness struct {
		Grace int `yaml:"terminationGracePeriodSeconds"`
	} `yaml:"livenessProbe"`
	Mounts []struct {
		Name string
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
	EnvFrom []struct {
		ConfigMapRef struct{ Name string } `yaml:"configMapRef"`
	} `yaml:"envFrom"`
	Env []variable
}

type variable struct {
	Name, Value string
	ValueFrom   struct {
		FieldRef struct {
			Path string `yaml:"fieldPath"`
		} `yaml:"fieldRef"`
		SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
	} `yaml:"valueFrom"`
}

type servicePort struct {
	Name       string
	Port       int
	TargetPort string `yaml:"targetPort"`
}

type openPort struct {
	Name          string
	ContainerPort int `yaml:"containerPort"`
}

// linkWarning is a part of the warning that Helm prints for each symbolic link. The charts share
// files by symbolic links.
const linkWarning = "found symbolic link"

// runHelm runs Helm, which `make charts` installs.
func runHelm(t *testing.T, args ...string) (out []byte, stderr string, err error) {
	t.Helper()
	program := os.Getenv("RINGFENCE_HELM")
	if program == "" {
		t.Skip("RINGFENCE_HELM names no helm: `make charts` builds one and runs this")
	}
	var faults bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stderr = &faults
	out, err = cmd.Output()
	for line := range strings.Lines(faults.String()) {
		if !strings.Contains(line, linkWarning) {
			stderr += line
		}
	}
	return out, stderr, err
}

func manifests(t *testing.T, chart string, args ...string) []byte {
	t.Helper()
	out, stderr, err := runHelm(t,
		append([]string{"template", "ringfence", filepath.Join(root, "helm", chart)}, args...)...)
	if err != nil {
		t.Fatalf("helm template %s: %v: %s", chart, err, stderr)
	}
	return out
}

const (
	registry   = "registry.example.net"
	consoleURL = "https://console.example.net"
)

const publicKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

// requiredArgs returns the arguments without which a chart does not render: the registry, the
// public keys of a service, the networks of the dialer's nodes, and the console's address.
func requiredArgs(t *testing.T, chart string) (args []string) {
	t.Helper()
	switch chart {
	case "simcarrier": // the registry only
	case "console":
		args = []string{"--set", "env.CONSOLE_URL=" + consoleURL}
	case "ringfence":
		args = append(keysOf(t, chart), "--set", "global.nodes={198.51.100.0/24}")
	default:
		args = keysOf(t, chart)
	}
	return append(args, "--set", "global.registry="+registry)
}

// environmentArgs adds the keys and the registry, because an example of helm/environments does not
// contain them.
func environmentArgs(t *testing.T, name string) []string {
	t.Helper()
	return append(keysOf(t, "ringfence"), "--values", filepath.Join(root, "helm/environments", name+".yaml"),
		"--set", "global.registry="+registry)
}

// keysOf returns the arguments that set the public keys of the calling services.
func keysOf(t *testing.T, chart string) (args []string) {
	t.Helper()
	prefix, of := "", []string{chart}
	if chart == "ringfence" {
		of = services
	}
	for _, name := range of {
		if len(of) > 1 {
			prefix = name + "."
		}
		if askers := valuesOf(t, name).Network.AskedBy; len(askers) > 0 {
			args = append(args, "--set", prefix+"env.TRUSTED_KEYS="+strings.Join(askers, "="+publicKey+`\,`)+"="+publicKey)
		}
	}
	return args
}

func render(t *testing.T, chart string, args ...string) map[string]object {
	t.Helper()
	return objectsIn(t, chart, manifests(t, chart, append(requiredArgs(t, chart), args...)...))
}

func objectsIn(t *testing.T, chart string, out []byte) map[string]object {
	t.Helper()
	found := map[string]object{}
	documents := yaml.NewDecoder(bytes.NewReader(out))
	for {
		var o object
		err := documents.Decode(&o)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("%s renders no YAML: %v\n%s", chart, err, out)
		}
		key := o.Kind + "/" + o.Metadata.Name
		if _, twice := found[key]; twice {
			t.Errorf("%s renders %s twice", chart, key)
		}
		fields := map[string]string{"apiVersion": o.APIVersion, "kind": o.Kind, "metadata.name": o.Metadata.Name}
		for field, value := range fields {
			if value == "" {
				t.Errorf("%s renders %q without %s", chart, key, field)
			}
		}
		found[key] = o
	}
}

func TestCharts_EachRendersAWholeService(t *testing.T) {
	t.Parallel()
	for _, name := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := render(t, name)
			workload, ok := objects["Deployment/"+name]
			if !ok {
				workload, ok = objects["StatefulSet/"+name]
			}
			pod := workload.Spec.Template.Spec
			migration, hook := objects["Job/"+name+"-migrate"]
			if !ok {
				t.Fatalf("no workload among %v", slices.Sorted(maps.Keys(objects)))
			}
			if !hook {
				t.Fatalf("no migration among %v", slices.Sorted(maps.Keys(objects)))
			}
			if got := len(pod.Containers); got != 1 {
				t.Fatalf("containers = %d, want 1", got)
			}
			wantEqual(t, "init containers", len(pod.InitContainers), 0)
			if workload.Kind == "StatefulSet" && objects["Service/"+workload.Spec.ServiceName].Kind == "" {
				t.Errorf("the Service %q that names the replicas is not rendered", workload.Spec.ServiceName)
			}
			if _, ok := objects["ServiceAccount/"+pod.ServiceAccountName]; !ok {
				t.Errorf("the account %q is not rendered", pod.ServiceAccountName)
			}
			migrate := migration.Spec.Template.Spec.Containers[0]
			if !slices.Equal(migrate.Args, []string{"migrate"}) {
				t.Errorf("the migration runs %v", migrate.Args)
			}
			probe, v := pod.Containers[0].Startup, valuesOf(t, name)
			if v.StartsWithin == 0 {
				t.Error("startsWithin = 0, want more")
			}
			if got := probe.Period * probe.Failures; got < v.StartsWithin {
				t.Errorf("time for a start = %d s, want at least %d", got, v.StartsWithin)
			}
			grace := pod.Containers[0].Liveness.Grace
			if grace < 1 { // 0 (not set) means the grace period of the pod, which can be hours
				t.Errorf("grace of a replica that hangs = %d s, want at least 1", grace)
			}
			if grace > 60 {
				t.Errorf("grace of a replica that hangs = %d s, want at most 60", grace)
			}
			for _, c := range append(pod.Containers, migrate) {
				checkContainer(t, name, c, objects)
			}
			for _, v := range migrate.Env {
				if v.Value != "" && v.Value != objects["ConfigMap/"+name].Data[v.Name] {
					t.Errorf("the migration has %s=%q, the service %q", v.Name, v.Value, objects["ConfigMap/"+name].Data[v.Name])
				}
			}
			got, _ := workload.Spec.Selector["matchLabels"].(map[string]any)
			if !selectorMatches(got, workload.Spec.Template.Metadata.Labels) {
				t.Errorf("the workload selects %v, its pods are labelled %v", got, workload.Spec.Template.Metadata.Labels)
			}
			for key, o := range objects {
				if o.Kind != "Service" {
					continue
				}
				if labels := workload.Spec.Template.Metadata.Labels; !selectorMatches(o.Spec.Selector, labels) {
					t.Errorf("selector of %s = %v, want labels of the pods: %v", key, o.Spec.Selector, labels)
				}
				if !opensTargetPorts(o, pod.Containers[0]) {
					t.Errorf("ports of %s = %+v, want ports of the container: %+v", key, o.Spec.Ports, pod.Containers[0].Ports)
				}
			}
		})
	}
}

const versionLabel = "app.kubernetes.io/version"

// Each object and each pod must have the version that runs in its label, and each image its tag.
func TestCharts_LabelsAndImagesHaveTheVersion(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, tag, label string }{
		{name: "version", tag: "9.8.7", label: "9.8.7"},
		{name: "longest tag", tag: strings.Repeat("a", 62) + "-" + strings.Repeat("b", 65), label: strings.Repeat("a", 62)},
		{name: "tag that begins with an underscore", tag: "_9.8.7", label: "9.8.7"},
		{name: "tag with a digest", tag: "9.8.7@sha256:" + strings.Repeat("0", 64), label: "9.8.7"},
	} {
		for _, chart := range []string{"ringfence", "small", "console", "simcarrier"} {
			args := []string{"--set-string", "global.tag=" + row.tag}
			name := chart
			switch chart {
			case "ringfence":
				args = append(args, "--set", "alerts.enabled=true,dashboards.enabled=true")
			case "small": // the test pod has an image too
				name, args = "ringfence", append(args, "--values", filepath.Join(root, "helm/environments/small.yaml"))
			}
			rendered := manifests(t, name, append(requiredArgs(t, name), args...)...)
			if chart == "simcarrier" { // a label that the API server accepts here is accepted everywhere
				validate(t, rendered)
			}
			objects, images := objectsIn(t, chart, rendered), 0
			for key, o := range objects {
				what := chart + " with the " + row.name + ": version label of " + key
				wantEqual(t, what, o.Metadata.Labels[versionLabel], any(row.label))
				pod := o.Spec.Template
				if len(pod.Spec.Containers) > 0 {
					wantEqual(t, what+", pod", pod.Metadata.Labels[versionLabel], any(row.label))
				}
				for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers, o.Spec.Containers) {
					images++
					if !strings.HasSuffix(c.Image, ":"+row.tag) {
						t.Errorf("%s with the %s: image of %s = %q, want the tag %q", chart, row.name, key, c.Image, row.tag)
					}
				}
			}
			if images == 0 {
				t.Errorf("%s renders no container", chart)
			}
		}
	}
}

func checkContainer(t *testing.T, name string, c container, objects map[string]object) {
	t.Helper()
	if want := registry + "/ringfence/" + name + ":" + appVersion(t, name); c.Image != want {
		t.Errorf("image of %s = %q, want %q", c.Name, c.Image, want)
	}
	for _, from := range c.EnvFrom {
		if _, ok := objects["ConfigMap/"+from.ConfigMapRef.Name]; !ok {
			t.Errorf("%s reads the ConfigMap %q, which is not rendered", c.Name, from.ConfigMapRef.Name)
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom.FieldRef.Path != "" {
			continue
		}
		ref := v.ValueFrom.SecretKeyRef
		if public := !secretVariable.MatchString(v.Name) || v.Name == "TRUSTED_KEYS"; public && ref.Name == "" {
			continue
		}
		wantEqual(t, c.Name+": Secret of "+v.Name, ref.Name, name)
		if ref.Key == "" {
			t.Errorf("%s: %s names no key of the Secret", c.Name, v.Name)
		}
	}
}

// An uninstall keeps the Secret and the volume claim. So the key that signs consent records must be
// in the Secret, and the file of signed heads must be on the volume claim.
func TestCharts_UninstallKeepsTheConsentKeyAndTheSignedHeads(t *testing.T) {
	t.Parallel()
	const name = "contacts-compliance"
	objects := render(t, name)
	replicas := objects["StatefulSet/"+name].Spec
	serving := replicas.Template.Spec.Containers[0]
	signed := false
	for _, v := range serving.Env {
		signed = signed || v.Name == "CONSENT_KEYS" && v.ValueFrom.SecretKeyRef.Key == v.Name
	}
	if !signed {
		t.Error("CONSENT_KEYS is taken from no secret: the key of the ledger would go with SIGNING_KEY")
	}
	log := objects["ConfigMap/"+name].Data["CONSENT_HEAD_LOG"]
	if got := len(replicas.Claims); got != 1 {
		t.Fatalf("volume claims = %d, want 1", got)
	}
	if got := len(serving.Mounts); got != 1 {
		t.Fatalf("mounts = %d, want 1", got)
	}
	wantEqual(t, "mounted volume", serving.Mounts[0].Name, replicas.Claims[0].Metadata.Name)
	wantEqual(t, "folder of CONSENT_HEAD_LOG", filepath.Dir(log), serving.Mounts[0].Path)
}

func appVersion(t *testing.T, chart string) string {
	t.Helper()
	for _, line := range lines(t, "helm/"+chart+"/Chart.yaml") {
		if version, ok := strings.CutPrefix(line, "appVersion: "); ok {
			return strings.Trim(version, `"`)
		}
	}
	t.Fatalf("%s has no appVersion", chart)
	return ""
}

// selectorMatches reports whether the selector has at least one label and the pods have all of its
// labels.
func selectorMatches(selector, labels map[string]any) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

// opensTargetPorts reports whether the container opens every port that the Service forwards to.
func opensTargetPorts(service object, c container) bool {
	for _, p := range service.Spec.Ports {
		if !slices.ContainsFunc(c.Ports, func(open openPort) bool { return open.Name == p.TargetPort && open.ContainerPort == p.Port }) {
			return false
		}
	}
	return len(service.Spec.Ports) > 0
}

func TestCharts_URLsLeadToRenderedServices(t *testing.T) {
	t.Parallel()
	objects := render(t, "ringfence")
	followed := 0
	for _, name := range services {
		config := objects["ConfigMap/"+name]
		for variable, value := range config.Data {
			for part := range strings.SplitSeq(value, ",") {
				at := strings.Index(part, "http://")
				// SIM_URL leads to the simulated carrier, which the charts do not contain
				if at < 0 || variable == "SIM_URL" {
					continue
				}
				peer, err := url.Parse(part[at:])
				if err != nil {
					t.Errorf("%s: %s: %v", name, variable, err)
					continue
				}
				service, ok := objects["Service/"+peer.Hostname()]
				if service.Spec.PublishesUnready {
					t.Errorf("%s: %s=%s leads to replicas that are not ready, or are ending for hours", name, variable, part)
				}
				if !ok || !slices.ContainsFunc(service.Spec.Ports, func(p servicePort) bool { return peer.Port() == strconv.Itoa(p.Port) }) {
					t.Errorf("%s: %s=%s leads to no Service", name, variable, part)
				}
				followed++
			}
		}
	}
	if followed < 10 {
		t.Errorf("only %d addresses were found", followed)
	}
}
