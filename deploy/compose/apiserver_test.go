package compose_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
)

// apiServer is etcd and a Kubernetes API server without nodes. It validates manifests exactly as a
// cluster does. It is nil if RINGFENCE_KUBERNETES is empty.
var apiServer *kubernetesAPI

type kubernetesAPI struct {
	bin, dir, port string
	processes      []*exec.Cmd
	// ended receives the name of a process that ended.
	ended chan string
}

const apiToken = "token-of-the-test"

func TestMain(m *testing.M) {
	code, err := runWithAPIServer(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runWithAPIServer(m *testing.M) (code int, err error) {
	bin := os.Getenv("RINGFENCE_KUBERNETES")
	if bin == "" {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "apiserver")
	if err != nil {
		return 1, err
	}
	apiServer = &kubernetesAPI{bin: bin, dir: dir, ended: make(chan string, 2)}
	defer func() { err = errors.Join(err, apiServer.stop()) }()
	if err := apiServer.start(context.Background()); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func (k *kubernetesAPI) start(ctx context.Context) error {
	var ports [3]string
	for i := range ports {
		free, err := testkit.Port()
		if err != nil {
			return err
		}
		ports[i] = fmt.Sprint(free)
	}
	k.port = ports[2]
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	for name, content := range map[string][]byte{
		"key.pem":    pem.EncodeToMemory(block),
		"tokens.csv": []byte(apiToken + ",test,test,system:masters\n"),
	} {
		if err := os.WriteFile(filepath.Join(k.dir, name), content, 0o600); err != nil {
			return err
		}
	}
	store, peers, signing := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1], filepath.Join(k.dir, "key.pem")
	for _, args := range [][]string{
		{
			"etcd", "--data-dir=" + filepath.Join(k.dir, "etcd"), "--unsafe-no-fsync",
			"--listen-client-urls=" + store, "--advertise-client-urls=" + store, "--listen-peer-urls=" + peers,
			"--initial-advertise-peer-urls=" + peers, "--initial-cluster=default=" + peers,
		},
		{
			"kube-apiserver", "--etcd-servers=" + store, "--bind-address=127.0.0.1", "--secure-port=" + k.port,
			"--cert-dir=" + filepath.Join(k.dir, "certificates"), "--token-auth-file=" + filepath.Join(k.dir, "tokens.csv"),
			"--authorization-mode=AlwaysAllow", "--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + signing, "--service-account-signing-key-file=" + signing,
			"--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.96.0.0/16",
		},
	} {
		if err := k.run(args); err != nil {
			return err
		}
	}
	ready := func() (bool, error) {
		select {
		case name := <-k.ended:
			return false, fmt.Errorf("%s ended", name)
		default:
			return k.kubectl(ctx, nil, "get", "--raw", "/readyz") == nil, nil
		}
	}
	if err := kit.Until(ctx, kit.HangTimeout, "the API server is ready", ready); err != nil {
		return errors.Join(err, k.logs())
	}
	definitions, err := os.ReadFile("testdata/operator.yaml")
	if err != nil {
		return err
	}
	if err := k.kubectl(ctx, definitions, "apply", "-f", "-"); err != nil {
		return err
	}
	return k.kubectl(ctx, nil, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
}

func (k *kubernetesAPI) run(args []string) error {
	log, err := os.Create(filepath.Join(k.dir, args[0]+".log"))
	if err != nil {
		return err
	}
	process := exec.Command(filepath.Join(k.bin, args[0]), args[1:]...)
	process.Stdout, process.Stderr = log, log
	if err := errors.Join(process.Start(), log.Close()); err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	go func() {
		_ = process.Wait()
		k.ended <- args[0]
	}()
	k.processes = append(k.processes, process)
	return nil
}

func (k *kubernetesAPI) logs() error {
	var all []error
	for _, process := range k.processes {
		name := filepath.Base(process.Path)
		text, err := os.ReadFile(filepath.Join(k.dir, name+".log"))
		all = append(all, err, fmt.Errorf("%s: %s", name, text[max(0, len(text)-2000):]))
	}
	return errors.Join(all...)
}

func (k *kubernetesAPI) stop() error {
	for _, process := range k.processes {
		_ = process.Process.Kill()
	}
	return os.RemoveAll(k.dir)
}

func (k *kubernetesAPI) kubectl(ctx context.Context, input []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(k.bin, "kubectl"), append([]string{
		"--server=https://127.0.0.1:" + k.port, "--token=" + apiToken, "--insecure-skip-tls-verify",
		"--kubeconfig=" + os.DevNull, "--cache-dir=" + filepath.Join(k.dir, "cache"),
	}, args...)...)
	cmd.Stdin = bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// validate passes the manifests to the API server, which stores nothing. Unknown and duplicate
// fields are errors.
func validate(t *testing.T, rendered []byte) {
	t.Helper()
	if apiServer == nil {
		t.Fatal("RINGFENCE_KUBERNETES names no folder: run `make charts`")
	}
	if err := applyDry(t.Context(), rendered); err != nil {
		t.Error(err)
	}
}

func applyDry(ctx context.Context, rendered []byte) error {
	return apiServer.kubectl(ctx, rendered, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
}

// Each row adds one defect to valid manifests.
func TestAPIServer_RefusesBrokenManifests(t *testing.T) {
	t.Parallel()
	if apiServer == nil {
		t.Skip("RINGFENCE_KUBERNETES names no folder: `make charts` builds the programs and runs this")
	}
	made := filepath.Join(t.TempDir(), "made")
	if out, err := secretsScript(t, made, "PGSSLROOTCERT=system"); err != nil {
		t.Fatalf("secrets.sh: %v: %s", err, out)
	}
	secrets, err := os.ReadFile(filepath.Join(made, "secrets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	production := string(manifests(t, "ringfence", environmentArgs(t, "production")...))
	console := string(manifests(t, "console", requiredArgs(t, "console")...))
	for _, row := range []struct{ name, text, from, to, want string }{
		{name: "misspelt field", text: production, from: "readinessProbe:", to: "readynessProbe:", want: "unknown field"},
		{
			name: "port out of range", text: production, from: "containerPort: 9090", to: "containerPort: 99090",
			want: "between 1 and 65535",
		},
		{
			name: "policy with a wrong network", text: production, from: "cidr: 0.0.0.0/0", to: "cidr: 0.0.0.0/33",
			want: "must be a valid CIDR",
		},
		{
			name: "field of another type", text: production, from: "maxUnavailable: 1\n  selector",
			to: "maxUnavailable: []\n  selector", want: "maxUnavailable",
		},
		{
			name: "misspelt field of a ServiceMonitor", text: production, from: "jobLabel:", to: "jobLable:",
			want: "unknown field",
		},
		{
			name: "misspelt field of the console", text: console, from: "readinessProbe:", to: "readynessProbe:",
			want: "unknown field",
		},
		{
			name: "misspelt field of a Secret", text: string(secrets), from: "stringData:", to: "stringDate:",
			want: "unknown field",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(row.text, row.from) {
				t.Fatalf("the manifests do not contain %q", row.from)
			}
			broken := strings.Replace(row.text, row.from, row.to, 1)
			err := applyDry(t.Context(), []byte(broken))
			if err == nil {
				t.Fatal("the API server accepted the manifests, want a refusal")
			}
			wantContains(t, "refusal", err.Error(), row.want)
		})
	}
}
