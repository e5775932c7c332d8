package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

type entry struct {
	Seq    int64     `json:"seq"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	CallID string    `json:"call_id"`
	To     string    `json:"to"`
}

// carrierLog reads the log of the simulated carrier. Each read continues where the last one ended.
type carrierLog struct {
	url   string
	after int64
}

func (l *carrierLog) since(ctx context.Context) (entries []entry, err error) {
	var page struct{ Data []entry }
	err = get(ctx, fmt.Sprintf("%s/log?after=%d", l.url, l.after), func(resp *http.Response) error {
		return json.NewDecoder(resp.Body).Decode(&page)
	})
	if n := len(page.Data); err == nil && n > 0 {
		l.after = page.Data[n-1].Seq
	}
	return page.Data, err
}

// dialLog is what the carrier's log contains about a set of numbers. Each number must be dialed
// exactly once.
type dialLog struct {
	dialedAt map[string]time.Time // time of the first dial, by number
	calls    map[string]string    // id of the first call, by number
	// missing is the number of numbers that were never dialed. twice is the number of repeated dials
	// of a number.
	missing, twice  int
	lost            []string
	answered, ended int
	first, last     time.Time
}

func (h dialLog) perSecond() float64 {
	if len(h.dialedAt) < 2 || !h.last.After(h.first) {
		return 0
	}
	return float64(len(h.dialedAt)-1) / h.last.Sub(h.first).Seconds()
}

func countDials(entries []entry, numbers []string) dialLog {
	h := dialLog{dialedAt: map[string]time.Time{}, calls: map[string]string{}}
	ours := make(map[string]bool, len(numbers))
	for _, to := range numbers {
		ours[to] = true
	}
	for _, e := range entries {
		if !ours[e.To] {
			continue
		}
		switch e.Kind {
		case "answer":
			h.answered++
		case "hangup":
			h.ended++
		case "originate":
			if _, before := h.dialedAt[e.To]; before {
				h.twice++
				continue
			}
			h.dialedAt[e.To], h.calls[e.To] = e.At, e.CallID
			if h.first.IsZero() {
				h.first = e.At
			}
			h.last = e.At
		}
	}
	for _, to := range numbers {
		if _, dialed := h.dialedAt[to]; !dialed {
			h.lost = append(h.lost, to)
		}
	}
	h.missing = len(h.lost)
	return h
}
