package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// entry is one line of the carrier's own log: what really happened on the simulated telephone network, and when.
type entry struct {
	Seq    int64     `json:"seq"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	CallID string    `json:"call_id"`
	To     string    `json:"to"`
}

// carrierLog is read onwards from where it was read last.
type carrierLog struct {
	url   string
	after int64
}

// since are the entries that came since the last time.
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

// heard is what the carrier heard of numbers that were to be called once each.
type heard struct {
	// at is when each was first dialled, calls the id of that call.
	at    map[string]time.Time
	calls map[string]string
	// missing were never dialled; twice counts every dial of a number after its first.
	missing, twice int
	// lost are those that were never dialled.
	lost []string
	// answered and ended count calls.
	answered, ended int
	first, last     time.Time
}

// perSecond is the rate from the first dial to the last.
func (h heard) perSecond() float64 {
	if len(h.at) < 2 || !h.last.After(h.first) {
		return 0
	}
	return float64(len(h.at)-1) / h.last.Sub(h.first).Seconds()
}

// countCalls says what became of the numbers.
func countCalls(entries []entry, numbers []string) heard {
	h := heard{at: map[string]time.Time{}, calls: map[string]string{}}
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
			if _, before := h.at[e.To]; before {
				h.twice++
				continue
			}
			h.at[e.To], h.calls[e.To] = e.At, e.CallID
			if h.first.IsZero() {
				h.first = e.At
			}
			h.last = e.At
		}
	}
	for _, to := range numbers {
		if _, dialled := h.at[to]; !dialled {
			h.lost = append(h.lost, to)
		}
	}
	h.missing = len(h.lost)
	return h
}
