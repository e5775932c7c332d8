package main

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"ringfence.dev/test/kit"
)

// Landing records for each called number whether a terminal webhook has arrived. The receiver
// passes each delivery to the method Deliver.
type Landing struct {
	mu      sync.Mutex
	waiting map[string]chan time.Time
	// events maps each called number to the ids of its terminal events. Exactly one event is
	// correct.
	events map[string]map[string]bool
	badly  int
}

// NewLanding returns an empty Landing.
func NewLanding() *Landing {
	return &Landing{waiting: map[string]chan time.Time{}, events: map[string]map[string]bool{}}
}

// Deliver records one delivery.
func (l *Landing) Deliver(d kit.Delivery) {
	if d.Type == "call.ringing" || d.Type == "call.answered" || !strings.HasPrefix(d.Type, "call.") {
		return
	}
	var event struct {
		Data struct {
			To string `json:"to"`
		} `json:"data"`
	}
	if json.Unmarshal(d.Body, &event) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	to := event.Data.To
	landed, ours := l.waiting[to]
	if !ours {
		return
	}
	if !d.Signed {
		l.badly++
	}
	if l.events[to] == nil {
		l.events[to] = map[string]bool{}
		landed <- d.At // does not block, because the channel has a buffer of one
	}
	l.events[to][d.EventID] = true
}

// expect returns a channel that receives the arrival time of the number's first terminal webhook.
func (l *Landing) expect(number string) <-chan time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	landed := make(chan time.Time, 1)
	l.waiting[number] = landed
	return landed
}

type landingResult struct {
	// missing counts the calls without a terminal event. duplicates counts the calls with more than
	// one terminal event. A repeated delivery of the same event is not counted.
	missing, duplicates int
	lost                []string
	// badSignatures is the number of deliveries with an invalid signature.
	badSignatures int
}

// takeResult returns the result for the given numbers and stops recording them.
func (l *Landing) takeResult(numbers []string) (found landingResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, to := range numbers {
		switch n := len(l.events[to]); {
		case n == 0:
			found.missing++
			found.lost = append(found.lost, to)
		case n > 1:
			found.duplicates++
		}
		delete(l.waiting, to)
		delete(l.events, to)
	}
	found.badSignatures, l.badly = l.badly, 0
	return found
}

func (l *Landing) left(numbers []string) (left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, to := range numbers {
		if len(l.events[to]) == 0 {
			left++
		}
	}
	return left
}
