package media

import (
	"context"
	"encoding/binary"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/sdp"
)

// echoed sends frames that contain the current time. It measures how long the echo of each frame
// takes.
type echoed struct {
	now  func() time.Duration
	mu   sync.Mutex
	took []time.Duration
}

func (e *echoed) FrameUnsent() {}

func (e *echoed) NextFrame(dst []byte) bool {
	binary.BigEndian.PutUint64(dst, uint64(e.now()))
	return true
}

func (e *echoed) HearFrame(frame []byte) {
	stamp := time.Duration(binary.BigEndian.Uint64(frame))
	if stamp < 0 {
		return // a frame of silence contains no time
	}
	e.mu.Lock()
	e.took = append(e.took, e.now()-stamp)
	e.mu.Unlock()
}

func (e *echoed) HearDigit(byte) {}

func (e *echoed) reset() []time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	took := e.took
	e.took = make([]time.Duration, 0, 4096)
	return took
}

// BenchmarkStreams opens one stream to each address in RINGFENCE_MEDIA_PEERS. A program at these
// addresses echoes every packet. The benchmark reports the CPU time of this process during
// RINGFENCE_MEDIA_FOR. With RINGFENCE_MEDIA_SRTP, the streams use SRTP. Run it with `make bench
// ARGS='-only media'`.
func BenchmarkStreams(b *testing.B) {
	peers := strings.FieldsFunc(os.Getenv("RINGFENCE_MEDIA_PEERS"), func(r rune) bool { return r == ',' })
	window, err := time.ParseDuration(os.Getenv("RINGFENCE_MEDIA_FOR"))
	if len(peers) == 0 || err != nil {
		b.Skip("no peers to talk to: `make bench ARGS='-only media'` starts some")
	}
	streams, err := New(Settings{Bind: netip.MustParseAddr("127.0.0.1")}, nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- streams.Run(ctx) }()
	voices, all := make([]*echoed, len(peers)), make([]*Stream, len(peers))
	for i, peer := range peers {
		voices[i] = &echoed{now: streams.now}
		voices[i].reset()
		if all[i], err = streams.Open(Leg{Source: voices[i], Sink: voices[i]}); err != nil {
			b.Fatal(err)
		}
		to := sdp.Agreed{Remote: netip.MustParseAddrPort(peer), Codecs: []sdp.Codec{sdp.PCMU}, Direction: sdp.Both}
		if os.Getenv("RINGFENCE_MEDIA_SRTP") != "" {
			to.Out, to.In = &sdp.Key{byte(i)}, &sdp.Key{byte(i)}
		}
		if err := all[i].Connect(to); err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(time.Second) // the first second is not measured
	for _, v := range voices {
		v.reset()
	}
	counts := streams.late.snapshot()
	begun, spent := time.Now(), cpuTime(b)
	for b.Loop() {
		time.Sleep(window)
	}
	spent, took := cpuTime(b)-spent, time.Since(begun)
	late := streams.late.snapshot()
	for i := range late {
		late[i] -= counts[i]
	}
	var trips []time.Duration
	for _, v := range voices {
		trips = append(trips, v.reset()...)
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // packets in flight must be counted too
	var sum Stats
	for _, s := range all {
		sum.addStats(s.Close())
	}
	if len(trips) == 0 {
		b.Fatal("length of trips = 0, want more")
	}
	if sum.Forged+sum.UnknownSources+sum.Malformed+sum.Unsent > 0 {
		b.Fatalf("sum.Forged+sum.UnknownSources+sum.Malformed+sum.Unsent = %v, want 0",
			sum.Forged+sum.UnknownSources+sum.Malformed+sum.Unsent)
	}
	slices.Sort(trips)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*spent.Seconds()/took.Seconds(), "cpu-%")
	b.ReportMetric(100*spent.Seconds()/took.Seconds()*100/float64(len(all)), "cpu-%-per-100")
	b.ReportMetric(ms(quantile(late, 0.5)), "late-p50-ms")
	b.ReportMetric(ms(quantile(late, 0.99)), "late-p99-ms")
	b.ReportMetric(ms(trips[len(trips)/2]), "echo-p50-ms")
	b.ReportMetric(ms(trips[len(trips)*99/100]), "echo-p99-ms")
	b.ReportMetric(float64(sum.Sent), "sent")
	b.ReportMetric(float64(sum.Sent-min(sum.Received, sum.Sent)), "lost")
	b.ReportMetric(float64(streams.skipped.Load()), "skipped")
	b.ReportMetric(ms(sum.Jitter), "jitter-ms")
	b.ReportMetric(rate(sum.Sent, took+time.Second)/float64(len(all)), "sent/s")
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
}

func rate(n uint64, over time.Duration) float64 { return float64(n) / over.Seconds() }

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func (l *lateness) snapshot() (counts [len(latenessBounds) + 1]uint64) {
	for i := range counts {
		counts[i] = l.counts[i].Load()
	}
	return counts
}

func quantile(counts [len(latenessBounds) + 1]uint64, q float64) time.Duration {
	all := uint64(0)
	for _, n := range counts {
		all += n
	}
	rest, low := q*float64(all), time.Duration(0)
	for i, bound := range latenessBounds {
		if n := float64(counts[i]); rest <= n && n > 0 {
			return low + time.Duration(rest/n*float64(bound-low))
		}
		rest, low = rest-float64(counts[i]), bound
	}
	return low
}
