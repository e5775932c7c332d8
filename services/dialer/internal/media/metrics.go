package media

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Stats is how a stream went so far.
type Stats struct {
	// Sent are packets, Events those of them that were telephone-events; Unsent is what the system did not take.
	Sent, Events, Unsent uint64
	// Received are packets of the far end, duplicates not counted; Lost never came; Late came when silence had taken their place; Filled are frames of such silence.
	Received, Lost, Late, Duplicates, Filled uint64
	// Digits were heard. Sources is how often another SSRC took over, Restarts how often timestamps began anew.
	Digits, Sources, Restarts uint64
	// What was not heard: from somebody else, no RTP, of a payload type that is not ours, not authentic, played twice.
	Strangers, Malformed, Foreign, Forged, Replayed uint64
	// Excess are frames and digits that came faster than anybody speaks or presses keys.
	Excess uint64
	// Timeouts is how often nothing came for too long.
	Timeouts uint64
	// Jitter is that of arrivals (RFC 3550 A.8). LateMean and LateMost are how much later than due packets were sent.
	Jitter, LateMean, LateMost time.Duration
}

// Stats is how the stream went so far.
func (s *Stream) Stats() Stats {
	s.in.mu.Lock()
	stats := s.in.stats
	buffer := s.in.buffer.Stats()
	s.in.mu.Unlock()
	stats.Received, stats.Lost, stats.Late, stats.Duplicates = buffer.Received, buffer.Lost, buffer.Late, buffer.Duplicates
	stats.Filled, stats.Restarts, stats.Jitter = buffer.Filled, buffer.Restarts, buffer.Jitter
	stats.Excess += buffer.Excess
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	stats.Sent, stats.Events, stats.Unsent, stats.LateMost = s.out.sent, s.out.events, s.out.unsent, s.out.latest
	if s.out.sent > 0 {
		stats.LateMean = s.out.late / time.Duration(s.out.sent)
	}
	return stats
}

// add sums what can be summed.
func (a *Stats) add(b Stats) {
	for _, c := range counters {
		*c.of(a) += *c.of(&b)
	}
	a.Jitter = max(a.Jitter, b.Jitter)
}

// counter is one of Stats as a metric.
type counter struct {
	desc   *prometheus.Desc
	of     func(*Stats) *uint64
	labels []string
}

func described(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ringfence_dialer_rtp_"+name, help, labels, nil)
}

var (
	packets = described("packets_total", "RTP packets, by direction.", "direction")
	unheard = described("dropped_packets_total", "RTP packets that came and were not heard, by reason.", "reason")
	lateDsc = described("send_delay_seconds", "How much later than due RTP packets were sent.")
	opened  = described("streams", "RTP streams that are open.")
	resting = described("quarantined_ports", "RTP ports that stay bound after their call.")
	worst   = described("jitter_seconds", "The largest jitter of arrivals among open streams (RFC 3550).")
	skips   = described("skipped_frames_total", "Times of 20 ms that the pacing loop left out because it was too far behind.")

	counters = []counter{
		{packets, func(s *Stats) *uint64 { return &s.Sent }, []string{"sent"}},
		{packets, func(s *Stats) *uint64 { return &s.Received }, []string{"received"}},
		{unheard, func(s *Stats) *uint64 { return &s.Strangers }, []string{"stranger"}},
		{unheard, func(s *Stats) *uint64 { return &s.Malformed }, []string{"malformed"}},
		{unheard, func(s *Stats) *uint64 { return &s.Foreign }, []string{"payload_type"}},
		{unheard, func(s *Stats) *uint64 { return &s.Forged }, []string{"forged"}},
		{unheard, func(s *Stats) *uint64 { return &s.Replayed }, []string{"replayed"}},
		{unheard, func(s *Stats) *uint64 { return &s.Excess }, []string{"flood"}},
		{unheard, func(s *Stats) *uint64 { return &s.Late }, []string{"late"}},
		{unheard, func(s *Stats) *uint64 { return &s.Duplicates }, []string{"duplicate"}},
		{described("lost_packets_total", "RTP packets of far ends that never came."), func(s *Stats) *uint64 { return &s.Lost }, nil},
		{described("send_errors_total", "RTP packets that the system did not take."), func(s *Stats) *uint64 { return &s.Unsent }, nil},
		{described("silence_frames_total", "Frames of 20 ms in which far ends were heard as silence, since nothing came."), func(s *Stats) *uint64 { return &s.Filled }, nil},
		{described("sent_events_total", "Telephone-event packets sent."), func(s *Stats) *uint64 { return &s.Events }, nil},
		{described("received_digits_total", "Digits heard."), func(s *Stats) *uint64 { return &s.Digits }, nil},
		{described("source_changes_total", "Times that another SSRC took a stream over."), func(s *Stats) *uint64 { return &s.Sources }, nil},
		{described("restarts_total", "Times that a far end's timestamps began anew."), func(s *Stats) *uint64 { return &s.Restarts }, nil},
		{described("timeouts_total", "Times that nothing came for too long."), func(s *Stats) *uint64 { return &s.Timeouts }, nil},
	}
)

// collector sums over all streams when it is asked.
type collector struct{ *Streams }

// Describe tells the metrics' names.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	seen := map[*prometheus.Desc]bool{}
	for _, count := range counters {
		if !seen[count.desc] {
			seen[count.desc] = true
			to <- count.desc
		}
	}
	for _, desc := range []*prometheus.Desc{lateDsc, opened, resting, worst, skips} {
		to <- desc
	}
}

// Collect tells the sums.
func (c collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	sum, open := c.closed, len(c.all)
	for stream := range c.all {
		sum.add(stream.Stats())
	}
	c.mu.Unlock()
	for _, count := range counters {
		to <- prometheus.MustNewConstMetric(count.desc, prometheus.CounterValue, float64(*count.of(&sum)), count.labels...)
	}
	buckets, below := map[float64]uint64{}, uint64(0)
	for i, bound := range bounds {
		below += c.late.counts[i].Load()
		buckets[bound.Seconds()] = below
	}
	below += c.late.counts[len(bounds)].Load()
	to <- prometheus.MustNewConstHistogram(lateDsc, below, time.Duration(c.late.sum.Load()).Seconds(), buckets)
	to <- prometheus.MustNewConstMetric(opened, prometheus.GaugeValue, float64(open))
	to <- prometheus.MustNewConstMetric(resting, prometheus.GaugeValue, float64(c.ports.Resting()))
	to <- prometheus.MustNewConstMetric(worst, prometheus.GaugeValue, sum.Jitter.Seconds())
	to <- prometheus.MustNewConstMetric(skips, prometheus.CounterValue, float64(c.skipped.Load()))
}
