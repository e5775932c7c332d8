package delivering

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

	"ringfence.dev/deploy/bench/internal/proc"
)

// connections is how many goroutines, each with a connection of its own, the bare loop has.
const connections = 8

// sender POSTs to the receiver directly: the same body, headers and signature as the product's, and nothing else.
type sender struct {
	http   *http.Client
	url    string
	body   []byte
	secret []byte
}

func (h *House) sender(lane string) (*sender, error) {
	pem, err := os.ReadFile(h.CAFile)
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
		DisableCompression: true, MaxIdleConnsPerHost: 8 * connections,
	}
	return &sender{
		http: &http.Client{Transport: transport}, url: h.receiver.URLs[0] + "/take/" + lane,
		body: h.body(), secret: []byte("whsec_" + uuid.NewString()),
	}, nil
}

func (s *sender) close() { s.http.CloseIdleConnections() }

// post signs and sends the body once and reads the answer.
func (s *sender) post(ctx context.Context, event uuid.UUID) error {
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
func (s *sender) sign(at time.Time) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(t))
	mac.Write([]byte{'.'})
	mac.Write(s.body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// looped is what the bare loop found.
type looped struct {
	perSecond float64
	// cpu is the sender's CPU a POST, caught the receiver's.
	cpu, caught time.Duration
}

// bareLoop POSTs from eight goroutines, each as fast as it is answered.
func (h *House) bareLoop(ctx context.Context, long time.Duration) (looped, error) {
	s, err := h.sender(h.lane())
	if err != nil {
		return looped{}, err
	}
	defer s.close()
	for range connections { // connections are made now
		if err := s.post(ctx, uuid.New()); err != nil {
			return looped{}, err
		}
	}
	var (
		wg     sync.WaitGroup
		number atomic.Int64
		faults = make([]error, connections)
	)
	began, own, theirs := time.Now(), ownTime(), proc.Spent(h.receiver.PID)
	for n := range connections {
		wg.Go(func() {
			for time.Since(began) < long && faults[n] == nil {
				faults[n] = s.post(ctx, uuid.New())
				number.Add(1)
			}
		})
	}
	wg.Wait()
	took, posts := time.Since(began), time.Duration(number.Load())
	if err := errors.Join(faults...); err != nil {
		return looped{}, fmt.Errorf("bare loop: %w", err)
	}
	return looped{
		perSecond: float64(posts) / took.Seconds(),
		cpu:       (ownTime() - own) / posts, caught: (proc.Spent(h.receiver.PID) - theirs) / posts,
	}, nil
}

// mean is of the loop before and the loop after.
func mean(a, b looped) looped {
	return looped{perSecond: (a.perSecond + b.perSecond) / 2, cpu: (a.cpu + b.cpu) / 2, caught: (a.caught + b.caught) / 2}
}

// ownTime is the CPU of this process, which in the loops does nothing but send.
func ownTime() time.Duration {
	var self syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) != nil {
		return 0
	}
	return time.Duration(self.Utime.Nano() + self.Stime.Nano())
}
