// Package dialqueue holds the rules of the dial queue: which workspaces are served next, how many
// calls each may begin under the limits, and how fast. It stores nothing and reads no clock: the
// statements are in package store, the loop that claims is in package dialing.
package dialqueue

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// WorkspacesPerClaim is how many workspaces one claim looks at.
const WorkspacesPerClaim = 64

// Due is a workspace with queued requests, and how long until the first of them is due.
type Due struct {
	WorkspaceID uuid.UUID
	Wait        time.Duration
}

// Candidates are the workspaces that may have due requests, in the order in which they are served.
// Every process has its own order. W workspaces with due requests are all looked at within
// ceil(W/WorkspacesPerClaim) claims of a process, if at least WorkspacesPerClaim attempts, channels and tokens
// of the shared rates are free in each claim. It is not safe for concurrent use.
type Candidates struct {
	order []uuid.UUID
	at    map[uuid.UUID]time.Time // when the first request of a workspace is due
}

// Replace takes the workspaces that were found at now. Those that are known keep their places, the
// others are served after them.
func (c *Candidates) Replace(found []Due, now time.Time) {
	at := make(map[uuid.UUID]time.Time, len(found))
	for _, due := range found {
		at[due.WorkspaceID] = now.Add(due.Wait)
	}
	known := c.at
	c.at = at
	c.order = slices.DeleteFunc(c.order, func(id uuid.UUID) bool { _, found := at[id]; return !found })
	for _, due := range found {
		if _, had := known[due.WorkspaceID]; !had {
			c.order = append(c.order, due.WorkspaceID)
		}
	}
}

// Next returns the workspaces that the next claim looks at, and how long until the next workspace has
// due work if there is none now; ok is false if none is known.
func (c *Candidates) Next(now time.Time) (window []uuid.UUID, wait time.Duration, ok bool) {
	for _, id := range c.order {
		rest := c.at[id].Sub(now)
		switch {
		case rest <= 0 && len(window) < WorkspacesPerClaim:
			window = append(window, id)
		case rest > 0 && (!ok || rest < wait):
			wait, ok = rest, true
		}
	}
	if len(window) > 0 {
		return window, 0, true
	}
	return nil, wait, ok
}

// Len returns how many workspaces are known.
func (c *Candidates) Len() int { return len(c.order) }

// Claimed takes the result of a claim of window at now. The workspaces up to index last go to the end of
// the order. If nothing was allocated, last is -1, and the whole window goes there. Those in drained
// have no due request left; the value is how long until the next one is due, or 0 if that is not known.
func (c *Candidates) Claimed(window []uuid.UUID, last int, drained map[uuid.UUID]time.Duration, now time.Time) {
	if last < 0 {
		last = len(window) - 1
	}
	gone := make(map[uuid.UUID]bool, len(drained))
	for id, wait := range drained {
		if c.at[id] = now.Add(wait); wait == 0 {
			gone[id] = true
			delete(c.at, id)
		}
	}
	served := make(map[uuid.UUID]bool, last+1)
	for _, id := range window[:last+1] {
		served[id] = true
	}
	order := make([]uuid.UUID, 0, len(c.order))
	for _, id := range c.order {
		if !gone[id] && !served[id] {
			order = append(order, id)
		}
	}
	for _, id := range window[:last+1] {
		if !gone[id] {
			order = append(order, id)
		}
	}
	c.order = order
}
