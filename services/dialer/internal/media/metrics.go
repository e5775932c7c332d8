package media

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Stats contains the counts of a stream so far.
type Stats struct {
	// Sent is the number of sent packets, and Events the number of telephone-events among them.
	// Unsent is the number of packets that the operating system refused.
	Sent, Events, Unsent uint64
	// Received is the number of the far end's packets, without duplicates. Lost packets never arrived.
	// Late packets arrived after silence had replaced them. Filled is the number of frames with
	// inserted silence.
	Received, Lost, Late, Duplicates, Filled uint64
	// Digits is the number of received digits. Sources is the number of changes of the SSRC. Restarts
	// is the number of new sequences of timestamps.
	Digits, Sources, Restarts uint64
	// These are numbers of dropped packets. UnknownSources were from an unknown address. Malformed
	// were not valid RTP. Foreign had a payload type that was not negotiated. Forged were not
	// authentic. Replayed were repeated.
	UnknownSources, Malformed, Foreign, Forged, Replayed uint64
	// Excess is the number of frames and digits that were dropped because they arrived faster than
	// real time.
	Excess uint64
	// Timeouts is the number of times that the stream timed out.
	Timeouts uint64
	// Jitter is the interarrival jitter (RFC 3550 A.8). LateMean and LateMost are the mean and the
	// maximum delay of sent packets.
	Jitter, LateMean, LateMost time.Duration
}

// Stats returns the counts of the stream so far.
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

// addStats adds the counts of b to a. The jitter of a becomes the higher one of the two.
func (a *Stats) addStats(b Stats) {
	for _, c := range counters {
		*c.of(a) += *c.of(&b)
	}
	a.Jitter = max(a.Jitter, b.Jitter)
}

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
	unheard = described("dropped_packets_total", "Received RTP packets that were dropped, by reason.", "reason")
	lateDsc = described("send_delay_seconds", "Delay of sent RTP packets after their due time.")
	opened  = described("streams", "Open RTP streams.")
	resting = described("quarantined_ports", "RTP ports that are still bound after their call.")
	worst   = described("jitter_seconds", "Highest interarrival jitter of the open streams (RFC 3550).")
	skips   = described("skipped_frames_total", "Frames of 20 ms that the pacing loop skipped because it was too late.")

	counters = []counter{
		{packets, func(s *Stats) *uint64 { return &s.Sent }, []string{"sent"}},
		{packets, func(s *Stats) *uint64 { return &s.Received }, []string{"received"}},
		{unheard, func(s *Stats) *uint64 { return &s.UnknownSources }, []string{"unknown_source"}},
		{unheard, func(s *Stats) *uint64 { return &s.Malformed }, []string{"malformed"}},
		{unheard, func(s *Stats) *uint64 { return &s.Foreign }, []string{"payload_type"}},
		{unheard, func(s *Stats) *uint64 { return &s.Forged }, []string{"forged"}},
		{unheard, func(s *Stats) *uint64 { return &s.Replayed }, []string{"replayed"}},
		{unheard, func(s *Stats) *uint64 { return &s.Excess }, []string{"flood"}},
		{unheard, func(s *Stats) *uint64 { return &s.Late }, []string{"late"}},
		{unheard, func(s *Stats) *uint64 { return &s.Duplicates }, []string{"duplicate"}},
		{
			described("lost_packets_total", "RTP packets of far ends that never arrived."),
			func(s *Stats) *uint64 { return &s.Lost },
			nil,
		},
		{
			described("send_errors_total", "RTP packets that the operating system refused to send."),
			func(s *Stats) *uint64 { return &s.Unsent },
			nil,
		},
		{
			described(
				"silence_frames_total",
				"Frames of 20 ms that were filled with silence because no packet arrived.",
			),
			func(s *Stats) *uint64 { return &s.Filled },
			nil,
		},
		{
			described("sent_events_total", "Telephone-event packets sent."),
			func(s *Stats) *uint64 { return &s.Events },
			nil,
		},
		{described("received_digits_total", "Received DTMF digits."), func(s *Stats) *uint64 { return &s.Digits }, nil},
		{
			described("source_changes_total", "Changes of the SSRC within a stream."),
			func(s *Stats) *uint64 { return &s.Sources },
			nil,
		},
		{
			described("restarts_total", "Restarts of a far end's timestamps."),
			func(s *Stats) *uint64 { return &s.Restarts },
			nil,
		},
		{
			described("timeouts_total", "Media timeouts: no packet arrived for too long."),
			func(s *Stats) *uint64 { return &s.Timeouts },
			nil,
		},
	}
)

type collector struct{ *Streams }

// Describe implements prometheus.Collector.
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

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	sum, open := c.closed, len(c.all)
	for stream := range c.all {
		sum.addStats(stream.Stats())
	}
	c.mu.Unlock()
	for _, count := range counters {
		to <- prometheus.MustNewConstMetric(count.desc, prometheus.CounterValue, float64(*count.of(&sum)), count.labels...)
	}
	buckets, below := map[float64]uint64{}, uint64(0)
	for i, bound := range latenessBounds {
		below += c.late.counts[i].Load()
		buckets[bound.Seconds()] = below
	}
	below += c.late.counts[len(latenessBounds)].Load()
	to <- prometheus.MustNewConstHistogram(lateDsc, below, time.Duration(c.late.sum.Load()).Seconds(), buckets)
	to <- prometheus.MustNewConstMetric(opened, prometheus.GaugeValue, float64(open))
	to <- prometheus.MustNewConstMetric(resting, prometheus.GaugeValue, float64(c.ports.Resting()))
	to <- prometheus.MustNewConstMetric(worst, prometheus.GaugeValue, sum.Jitter.Seconds())
	to <- prometheus.MustNewConstMetric(skips, prometheus.CounterValue, float64(c.skipped.Load()))
}
