package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ringfence.dev/libs/kafka"
)

func grant(t *testing.T, admin *kadm.Client, user string, on *kadm.ACLBuilder, rights ...kadm.ACLOperation) {
	t.Helper()
	given, err := admin.CreateACLs(t.Context(), on.Allow("User:"+user).AllowHosts("*").Operations(rights...).ResourcePatternType(kadm.ACLPatternLiteral))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range given {
		if one.Err != nil {
			t.Fatalf("grant %s %v: %v", user, rights, one.Err)
		}
	}
}

func guarded(t *testing.T, users ...string) (forUsers, forAdmin string) {
	t.Helper()
	inner, outer, controller := port(t), port(t), port(t)
	b := broker{downloads: requireDownloads(t), jvm: smallHeap, dir: t.TempDir(), port: inner, properties: []string{
		fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", controller),
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,SASL_PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", inner, outer, controller),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d,SASL_PLAINTEXT://127.0.0.1:%d", inner, outer),
		"sasl.enabled.mechanisms=SCRAM-SHA-512",
		"listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS",
	}}
	for _, user := range users {
		b.scram = append(b.scram, "SCRAM-SHA-512=[name="+user+",password="+longPassword+"]")
	}
	if err := launch(t, &b).ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", outer), fmt.Sprintf("127.0.0.1:%d", inner)
}

// TestApacheKafka_DocumentedRightsSuffice checks that a consumer with the rights in docs/kafka.md
// finds its topics at start.
func TestApacheKafka_DocumentedRightsSuffice(t *testing.T) {
	const user = "calls"
	forUsers, forAdmin := guarded(t, user)
	wire, err := kafka.NewClient(kafka.Config{Brokers: []string{forAdmin}}, "admin", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wire.Close)
	if err := kafka.EnsureTopics(t.Context(), wire, kafka.Catalogue()); err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(wire.Client)
	var reads []kafka.Topic
	for _, topic := range kafka.Catalogue() {
		readers := kafka.Readers(topic.Name)
		if !slices.Contains(readers, user) {
			continue
		}
		reads = append(reads, topic)
		grant(t, admin, user, kadm.NewACLs().Topics(topic.Name, kafka.DLQ(topic, user).Name), kmsg.ACLOperationRead, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs)
		for _, other := range readers {
			grant(t, admin, user, kadm.NewACLs().Topics(kafka.DLQ(topic, other).Name), kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs)
		}
	}
	client, err := kafka.NewClient(kafka.Config{Brokers: []string{forUsers}, Security: kafka.Security{Mechanism: "SCRAM-SHA-512", User: user, Password: longPassword}}, user, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	until(t, user+" finds its topics after the broker has applied its rights", func() bool {
		err := kafka.EnsureTopics(t.Context(), client, reads)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
}
