// The baseline loop of webhooks runs without the product. It sends the same body, headers and
// signature as the dispatcher, over the same kind of connection. Deliveries cannot be faster than
// this loop, so the loop is their limit.

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

// Connections is the number of goroutines of the baseline loop. Each has one connection.
const Connections = 8

// Sender sends POST requests to one address.
type Sender struct {
	http   *http.Client
	url    string
	body   []byte
	secret []byte
}

// NewPosting returns a sender that trusts the certificate authority in the file.
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

// Close closes the idle connections.
func (s *Sender) Close() { s.http.CloseIdleConnections() }

// Post signs and sends the body once and reads the response.
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

// sign returns the signature header (docs/reference/api/webhooks.md).
func (s *Sender) sign(at time.Time) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(t))
	mac.Write([]byte{'.'})
	mac.Write(s.body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// Looped is the result of the baseline loop.
type Looped struct {
	PerSecond float64
	// CPU is the CPU time of the sender for each POST. Caught is the CPU time of the receiver for
	// each POST.
	CPU, Caught time.Duration
}

// Loop sends POST requests from eight goroutines. Each goroutine sends the next request when the
// response arrives. receiver is the id of the receiving process.
func (s *Sender) Loop(ctx context.Context, long time.Duration, receiver string) (Looped, error) {
	defer s.Close()
	var (
		wg     sync.WaitGroup
		number atomic.Int64
		faults = make([]error, Connections)
	)
	for n := range Connections { // these requests open the connections
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
		return Looped{}, fmt.Errorf("baseline loop: %w", err)
	}
	return Looped{
		PerSecond: float64(posts) / took.Seconds(), CPU: (ownTime() - own) / posts, Caught: (Spent(receiver) - theirs) / posts,
	}, nil
}

// Mean returns the mean of two loops, one before and one after a measurement.
func Mean(a, b Looped) Looped {
	return Looped{PerSecond: (a.PerSecond + b.PerSecond) / 2, CPU: (a.CPU + b.CPU) / 2, Caught: (a.Caught + b.Caught) / 2}
}

// ownTime returns the CPU time of this process, which does nothing else during the loops.
func ownTime() time.Duration {
	var self syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) != nil {
		return 0
	}
	return time.Duration(self.Utime.Nano() + self.Stime.Nano())
}
