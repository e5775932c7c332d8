package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/test/kit"
)

// kafkaTools lists the tools of the runbooks and their classes, as in Kafka's own scripts.
var kafkaTools = map[string]string{
	"kafka-topics.sh": "org.apache.kafka.tools.TopicCommand", "kafka-configs.sh": "kafka.admin.ConfigCommand",
	"kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}

// TestApacheKafka_ToolsOfTheRunbooksSucceed runs the commands with Kafka's tools in the runbooks on
// a broker that has all topics.
func TestApacheKafka_ToolsOfTheRunbooksSucceed(t *testing.T) {
	kept := requireDownloads(t)
	b := broker{downloads: kept, jvm: smallHeap, dir: t.TempDir(), port: port(t)}
	started := launch(t, &b)
	if err := started.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := kafka.NewClient(kafka.Config{Brokers: []string{started.address}}, "calls", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if err := kafka.EnsureTopics(t.Context(), client, kafka.Catalogue()); err != nil {
		t.Fatal(err)
	}
	// the commands describe the group calls, and delete a setting of the topic dial-intents.v1
	admin := kadm.NewClient(client.Client)
	position := kadm.OffsetsFromRecords(kgo.Record{Topic: kafka.DialIntents.Name})
	if err := admin.CommitAllOffsets(t.Context(), "calls", position); err != nil {
		t.Fatal(err)
	}
	value := "true"
	setting := kadm.AlterConfig{Name: "unclean.leader.election.enable", Value: &value}
	answers, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{setting}, kafka.DialIntents.Name)
	for _, answer := range answers {
		err = errors.Join(err, answer.Err)
	}
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	for name, class := range kafkaTools {
		script := fmt.Sprintf("#!/bin/sh\nexec java %s -Dlog4j2.configurationFile=file:%s -cp '%s' %s \"$@\"\n",
			smallHeap, kept.path("log4j2.properties"), kept.path("lib/*"), class)
		//nolint:gosec // the file is a program
		if err := os.WriteFile(filepath.Join(programs, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	used := map[string]bool{}
	pages, err := kit.ReadPages("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range pages {
		for line := range strings.Lines(block.Text) {
			tool, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if _, isTool := kafkaTools[tool]; !isTool {
				continue
			}
			used[tool] = true
			cmd := exec.CommandContext(t.Context(), "sh", "-euc", line)
			cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "KAFKA="+started.address)
			output, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(output), "rror") {
				t.Errorf("%s: %s%v\n%s", block, line, err, output)
			}
		}
	}
	for tool := range kafkaTools {
		if !used[tool] {
			t.Errorf("no page uses %s", tool)
		}
	}
}
