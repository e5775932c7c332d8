package dispatching

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// tenant is a subscription with due work in a database that there is not.
type tenant struct {
	endpoint
	seats, first, retry int
}

// chance does with lanes what a dispatcher may do, in any order.
type chance struct {
	*rand.Rand
	l       *lanes
	tenants []*tenant
	fly     []delivery.Work // claimed, not begun
	open    []*flight
}

func newChance(seed uint64) *chance {
	c := &chance{Rand: rand.New(rand.NewPCG(seed, 4))}
	c.l = newLanes(1+c.IntN(60), 1+c.IntN(8))
	for range 1 + c.IntN(8) {
		one := &tenant{endpoint: newEndpoint(c.l)}
		c.move(one)
		c.tenants = append(c.tenants, one)
	}
	return c
}

// move gives the subscription another url, perhaps of a host that others have.
func (c *chance) move(one *tenant) { one.work.URL = fmt.Sprintf("https://%d.example/", c.IntN(4)) }

func (c *chance) look() {
	for _, one := range c.tenants {
		if one.first+one.retry > 0 {
			one.look(one.first > 0, one.retry > 0)
		}
	}
}

func (c *chance) seat(one *tenant) {
	if c.l.seat(one.work.SubscriptionID, one.work.URL) {
		one.seats++
	} else {
		one.first++
	}
}

// claim serves the lanes until none has room. meanwhile is asked between a claim and its answer; false: the claim fails.
func (c *chance) claim(meanwhile func() bool) {
	for turn, rooms := c.l.ask(); len(rooms) > 0; turn, rooms = c.l.ask() {
		if !meanwhile() {
			c.l.refund(rooms)
			return
		}
		var work []delivery.Work
		for _, room := range rooms {
			work = append(work, c.take(room)...)
		}
		fly, back := c.l.got(turn, rooms, work)
		c.fly = append(c.fly, fly...)
		for _, w := range back {
			one := c.of(w.SubscriptionID)
			if w.Retry {
				one.retry++
			} else {
				one.first++
			}
		}
	}
}

func (c *chance) of(id uuid.UUID) *tenant {
	return c.tenants[slices.IndexFunc(c.tenants, func(one *tenant) bool { return one.work.SubscriptionID == id })]
}

func (c *chance) take(room store.Room) []delivery.Work {
	one := c.of(room.SubscriptionID)
	if c.IntN(6) == 0 {
		c.move(one)
	}
	first := min(room.Total, one.first)
	retry := min(room.Total-first, room.Retries, one.retry)
	one.first, one.retry = one.first-first, one.retry-retry
	again := one.work
	again.Retry = true
	return append(slices.Repeat([]delivery.Work{one.work}, first), slices.Repeat([]delivery.Work{again}, retry)...)
}

func (c *chance) step() {
	one := c.tenants[c.IntN(len(c.tenants))]
	switch c.IntN(9) {
	case 0:
		one.first += c.IntN(20)
	case 1:
		one.retry += c.IntN(20)
	case 2:
		c.move(one)
	case 3:
		time.Sleep(time.Duration(c.IntN(1500)) * time.Millisecond) // some become slow
	case 4, 5:
		c.seat(one)
	case 6:
		switch {
		case one.seats == 0:
		case c.IntN(2) == 0:
			one.seats--
			c.l.unseat(one.work.SubscriptionID)
		default:
			one.seats--
			c.open = append(c.open, c.l.begin(one.work))
		}
	case 7:
		c.begin(c.IntN(len(c.fly) + 1))
		for range c.IntN(len(c.open) + 1) {
			c.end(c.IntN(len(c.open)), []delivery.Answer{good, hung, {Code: 503}, {Code: 404}}[c.IntN(4)])
		}
	case 8:
		c.look()
		c.claim(func() bool {
			c.seat(one)
			return c.IntN(10) > 0
		})
	}
}

func (c *chance) begin(n int) {
	for _, w := range c.fly[:n] {
		c.open = append(c.open, c.l.begin(w))
	}
	c.fly = c.fly[n:]
}

func (c *chance) end(i int, answer delivery.Answer) {
	c.l.end(c.open[i], answer)
	c.open = slices.Delete(c.open, i, i+1)
}

// TestLanes_AddUpWhateverHappens: no seat is lost or given twice, and once all answer well everything that is due is claimed.
func TestLanes_AddUpWhateverHappens(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			c := newChance(seed)
			for range 300 {
				c.step()
				if check(t, c.l); t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			for due, rounds := 1, 0; due > 0 || c.l.flying > 0; rounds++ {
				due = 0
				for _, one := range c.tenants {
					for ; one.seats > 0; one.seats-- {
						c.open = append(c.open, c.l.begin(one.work))
					}
					due += one.first + one.retry
				}
				for c.begin(len(c.fly)); len(c.open) > 0; {
					c.end(0, good)
				}
				c.look()
				c.claim(func() bool { return true })
				check(t, c.l)
				if rounds > 5000 {
					t.Error("rounds > 5000: the due deliveries are never claimed")
				}
				if t.Failed() {
					t.Fatalf("seed %d: %d due, %d open after %d rounds", seed, due, c.l.flying, rounds)
				}
			}
			time.Sleep(gatherFor) // what is to be gathered ends with the test
		})
	}
}
