package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// ReceiverCommand is the argument with which this program runs as the receiver of webhooks.
const ReceiverCommand = "receive-webhooks"

// Receiver is a running receiver process.
type Receiver struct {
	// URLs are the addresses of the receiver. Each URL has a different loopback address. The first
	// is 127.0.0.1.
	URLs []string
	// PID is the process id of the receiver.
	PID string

	control string
	cmd     *exec.Cmd
	in      io.Closer
}

// Start starts this program again as the receiver. The authority in the files signs the receiver's
// certificate.
func Start(caFile, keyFile string, hosts int) (*Receiver, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, ReceiverCommand, caFile, keyFile, strconv.Itoa(hosts))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the receiver: %w", err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		_ = in.Close()
		return nil, fmt.Errorf("the receiver ended before it listened: %w", cmd.Wait())
	}
	var printed receiverAddresses
	if err := json.Unmarshal(line, &printed); err != nil {
		return nil, fmt.Errorf("read the receiver's addresses: %w", err)
	}
	return &Receiver{URLs: printed.URLs, PID: strconv.Itoa(cmd.Process.Pid), control: printed.Control, cmd: cmd, in: in}, nil
}

// Stop ends the process.
func (r *Receiver) Stop() error {
	_ = r.in.Close()
	return r.cmd.Wait()
}

// Count returns the number of requests to a lane. A lane is a path of the receiver with its own
// counters.
func (r *Receiver) Count(ctx context.Context, lane string) (count Count, err error) {
	err = r.ask(ctx, "/count/"+lane, func(body io.Reader) error { return json.NewDecoder(body).Decode(&count) })
	return count, err
}

// Arrivals returns all requests to a lane (a path of the receiver), in the order in which the
// receiver received them.
func (r *Receiver) Arrivals(ctx context.Context, lane string) (all []Arrival, err error) {
	err = r.ask(ctx, "/arrivals/"+lane, func(body io.Reader) error { return gob.NewDecoder(body).Decode(&all) })
	return all, err
}

func (r *Receiver) ask(ctx context.Context, path string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.control+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the receiver: %w", err)
	}
	defer resp.Body.Close()
	return read(resp.Body)
}

func certificate(args []string) (*tls.Config, []string, error) {
	if len(args) != 3 {
		return nil, nil, fmt.Errorf("%s takes the authority's certificate, its key and a number of addresses", ReceiverCommand)
	}
	number, err := strconv.Atoi(args[2])
	if err != nil || number < 1 || number > 200 {
		return nil, nil, fmt.Errorf("%q is not a number of addresses", args[2])
	}
	authority, err := tls.LoadX509KeyPair(args[0], args[1])
	if err != nil {
		return nil, nil, fmt.Errorf("read the authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "bench receiver"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	var hosts []string
	for i := range number {
		address := net.IPv4(127, 0, 0, byte(i+1))
		leaf.IPAddresses = append(leaf.IPAddresses, address)
		hosts = append(hosts, address.String())
	}
	signed, err := x509.CreateCertificate(rand.Reader, leaf, authority.Leaf, &key.PublicKey, authority.PrivateKey)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the receiver's certificate: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{signed}, PrivateKey: key}}}, hosts, nil
}
