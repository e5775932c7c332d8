package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const smallHeap = "-Xms64m -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"

// libs/testkit/kafkatest deletes topics only in clusters whose id begins with ringfence-throwaway-.
const clusterID = "ringfence-throwaway-Aw"

type broker struct {
	downloads
	jvm        string
	dir        string
	port       int
	advertise  string
	properties []string
	scram      []string
	// If formatsItself is true, prepare runs Kafka's format tool for this broker. Otherwise prepare
	// copies the formatted folder of node 1, which is faster.
	formatsItself bool
}

// The session timeout is short, because a killed node can join again only after the timeout.
const settings = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[3]d
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[3]d
advertised.listeners=PLAINTEXT://%[2]s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=%[4]s
broker.session.timeout.ms=5000
broker.heartbeat.interval.ms=500
num.network.threads=2
num.io.threads=4
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.index.size.max.bytes=1048576
log.segment.bytes=67108864
log.cleaner.dedupe.buffer.size=8388608
file.delete.delay.ms=1000
`

// execBroker replaces this process with the broker.
func (b *broker) execBroker(ctx context.Context) error {
	java, args, err := b.prepare(ctx)
	if err != nil {
		return err
	}
	return fmt.Errorf("become the broker: %w", syscall.Exec(java, args, os.Environ()))
}

func (b *broker) prepare(ctx context.Context) (java string, args []string, err error) {
	if java, err = exec.LookPath("java"); err != nil {
		return "", nil, err
	}
	dir, err := filepath.Abs(b.dir)
	if err != nil {
		return "", nil, err
	}
	b.dir = dir
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("make broker directory: %w", err)
	}
	data := filepath.Join(b.dir, "data")
	if _, err := os.Stat(filepath.Join(data, "meta.properties")); errors.Is(err, os.ErrNotExist) {
		if err := b.createData(ctx, data); err != nil {
			return "", nil, err
		}
	}
	properties, err := b.write(data)
	if err != nil {
		return "", nil, err
	}
	args = append([]string{"broker"}, strings.Fields(b.jvm)...)
	return java, append(args, "-Dlog4j2.configurationFile=file:"+b.path("log4j2.properties"), "-cp", b.path("lib/*"), "kafka.Kafka", properties), nil
}

func (b *broker) write(data string) (path string, err error) {
	controller, err := freePort()
	if err != nil {
		return "", err
	}
	advertise := b.advertise
	if advertise == "" {
		advertise = net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port))
	}
	text := fmt.Sprintf(settings, b.port, advertise, controller, data) + strings.Join(b.properties, "\n") + "\n"
	path = filepath.Join(b.dir, "server.properties")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// createData renames a temporary folder at the end, so that no process uses an incomplete folder.
func (b *broker) createData(ctx context.Context, data string) error {
	fresh, err := os.MkdirTemp(b.dir, "formatting-")
	if err != nil {
		return fmt.Errorf("format the broker's directory: %w", err)
	}
	defer os.RemoveAll(fresh)
	made := filepath.Join(fresh, "data")
	if b.formatsItself || len(b.scram) > 0 {
		err = b.format(ctx, made)
	} else {
		err = os.CopyFS(made, os.DirFS(b.path("formatted")))
	}
	if err == nil {
		err = os.Rename(made, data)
	}
	if err != nil {
		return fmt.Errorf("format the broker's directory: %w", err)
	}
	return nil
}

// format runs Kafka's format tool, which takes one to two seconds.
func (b *broker) format(ctx context.Context, data string) error {
	properties, err := b.write(data)
	if err != nil {
		return err
	}
	args := []string{"-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=file:" + b.path("log4j2.properties"),
		"-cp", b.path("lib/*"), "kafka.tools.StorageTool", "format", "-t", clusterID, "-c", properties}
	for _, user := range b.scram {
		args = append(args, "--add-scram", user)
	}
	if output, err := exec.CommandContext(ctx, "java", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format: %w\n%s", err, output)
	}
	return nil
}

func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return ln.Addr().(*net.TCPAddr).Port, ln.Close()
}
