// Package posting sends webhooks without the product: the same body, headers and signature over the same kind of connection, and nothing else. It is
// the limit that deliveries are measured against.

package probe

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// Connections is how many goroutines, each with a connection of its own, the bare loop has.
const Connections = 8

// Sender POSTs to one address.
type Sender struct {
	http   *http.Client
	url    string
	body   []byte
	secret []byte
}

// NewPosting makes a sender that trusts the authority in the file.
func NewPosting(caFile, url string, body []byte) (*Sender, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("the receiver's authority is no certificate")
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Protocols: protocols,
		DisableCompression: true, MaxIdleConnsPerHost: 8 * Connections,
	}
	return &Sender{http: &http.Client{Transport: transport}, url: url, body: body, secret: []byte("whsec_" + uuid.NewString())}, nil
}

// Close ends the idle connections.
func (s *Sender) Close() { s.http.CloseIdleConnections() }

// Post signs and sends the body once and reads the answer.
func (s *Sender) Post(ctx context.Context, event uuid.UUID) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(s.body))
	if err != nil {
		return err
	}
	id := event.String()
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"Ringfence-Webhooks/1.0"}, "X-Service-Signature": {s.sign(time.Now())},
		"X-Service-Event-Id": {id}, "X-Service-Delivery-Id": {id}, "X-Service-Delivery-Attempt": {"1"},
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the receiver answers %s", resp.Status)
	}
	return err
}

// sign is the header of specification 6.3.
func (s *Sender) sign(at time.Time) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(t))
	mac.Write([]byte{'.'})
	mac.Write(s.body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// Looped is what the bare loop found.
type Looped struct {
	PerSecond float64
	// CPU is the sender's a POST, Caught the receiver's.
	CPU, Caught time.Duration
}

// Loop POSTs from eight goroutines, each as fast as it is answered; receiver is the id of the process they are sent to.
func (s *Sender) Loop(ctx context.Context, long time.Duration, receiver string) (Looped, error) {
	defer s.Close()
	var (
		wg     sync.WaitGroup
		number atomic.Int64
		faults = make([]error, Connections)
	)
	for n := range Connections { // connections are made now
		wg.Go(func() { faults[n] = s.Post(ctx, uuid.New()) })
	}
	wg.Wait()
	began, own, theirs := time.Now(), ownTime(), Spent(receiver)
	for n := range Connections {
		wg.Go(func() {
			for time.Since(began) < long && faults[n] == nil {
				faults[n] = s.Post(ctx, uuid.New())
				number.Add(1)
			}
		})
	}
	wg.Wait()
	took, posts := time.Since(began), time.Duration(max(1, number.Load()))
	if err := errors.Join(faults...); err != nil {
		return Looped{}, fmt.Errorf("bare loop: %w", err)
	}
	return Looped{
		PerSecond: float64(posts) / took.Seconds(), CPU: (ownTime() - own) / posts, Caught: (Spent(receiver) - theirs) / posts,
	}, nil
}

// Mean is of the loop before and the loop after.
func Mean(a, b Looped) Looped {
	return Looped{PerSecond: (a.PerSecond + b.PerSecond) / 2, CPU: (a.CPU + b.CPU) / 2, Caught: (a.Caught + b.Caught) / 2}
}

// ownTime is the CPU of this process, which in the loops does nothing but send.
func ownTime() time.Duration {
	var self syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) != nil {
		return 0
	}
	return time.Duration(self.Utime.Nano() + self.Stime.Nano())
}
