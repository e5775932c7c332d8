package main

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"ringfence.dev/test/kit"
)

// Landing knows which calls have had their terminal webhook, by the number called. It is told of every delivery to a receiver.
type Landing struct {
	mu      sync.Mutex
	waiting map[string]chan time.Time
	// events are the terminal events by number: one each.
	events map[string]map[string]bool
	badly  int
}

// NewLanding waits for nothing yet.
func NewLanding() *Landing {
	return &Landing{waiting: map[string]chan time.Time{}, events: map[string]map[string]bool{}}
}

// Deliver takes one delivery.
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
		landed <- d.At // it has room for one
	}
	l.events[to][d.EventID] = true
}

// expect is where the arrival of the number's first terminal webhook will be told.
func (l *Landing) expect(number string) <-chan time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	landed := make(chan time.Time, 1)
	l.waiting[number] = landed
	return landed
}

// landed is what came for some numbers.
type landed struct {
	// missing have no terminal event, double more than one; a delivery that came again is the same event.
	missing, double int
	// lost are the numbers of the former.
	lost []string
	// badly counts deliveries whose signature was wrong.
	badly int
}

// forget says what came for numbers that were expected, and expects them no more.
func (l *Landing) forget(numbers []string) (found landed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, to := range numbers {
		switch n := len(l.events[to]); {
		case n == 0:
			found.missing++
			found.lost = append(found.lost, to)
		case n > 1:
			found.double++
		}
		delete(l.waiting, to)
		delete(l.events, to)
	}
	found.badly, l.badly = l.badly, 0
	return found
}

// left is how many of the numbers have no terminal event yet.
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
