package stack

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

func TestEnsureTopics_ConnectsWithSASLPassword(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "ringfence", "right"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	s := &stack{brokers: strings.Join(cluster.ListenAddrs(), ",")}
	for name, value := range map[string]string{"KAFKA_BROKERS": s.brokers, "KAFKA_SASL_MECHANISM": "SCRAM-SHA-256", "KAFKA_USER": "ringfence", "KAFKA_PASSWORD": "right"} {
		t.Setenv(name, value)
	}
	if err := s.ensureTopics(t.Context()); err != nil {
		t.Error(err)
	}
	t.Setenv("KAFKA_SASL_MECHANISM", "")
	t.Setenv("KAFKA_USER", "")
	t.Setenv("KAFKA_PASSWORD", "")
	t.Setenv("KAFKA_CA_FILE", "authority.pem")
	err = s.ensureTopics(t.Context())
	if err == nil {
		t.Fatal("ensureTopics with an authority and without TLS succeeded, want an error")
	}
	if want := "set KAFKA_TLS=true"; !strings.Contains(err.Error(), want) {
		t.Errorf("ensureTopics = %v, want it to contain %q", err, want)
	}
}
