// Package dialqueue contains the rules of the dial queue: which workspaces are served next, how
// many calls each workspace may start under the limits, and which requests may not be dialed. The
// package stores no data, and only PauseMonitor reads a clock. Package store contains the SQL
// statements of the queue. Package dial contains the loop that claims requests.
//
// Dialing can be paused for everything, a workspace, an agent or a trunk. While a scope is paused,
// its requests stay queued and no INVITE is sent. Calls that are in progress continue.
package dialqueue

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// WorkspacesPerClaim is the highest number of workspaces that one claim searches.
const WorkspacesPerClaim = 64

// Due is a workspace with queued requests, and the time until the first of its requests is due.
type Due struct {
	WorkspaceID uuid.UUID
	Wait        time.Duration
}

// Candidates contains the workspaces that can have due requests, in the order in which claims serve
// them. Each process has a different order. While capacity is free, a process searches all W
// workspaces within ceil(W/WorkspacesPerClaim) claims. Candidates is not safe for concurrent use.
type Candidates struct {
	order []uuid.UUID
	dueAt map[uuid.UUID]time.Time // time at which the first request of each workspace is due
}

// Replace sets the workspaces to those that a search found at the time now. Workspaces that were
// already included keep their position in the order. New workspaces are appended.
func (c *Candidates) Replace(found []Due, now time.Time) {
	at := make(map[uuid.UUID]time.Time, len(found))
	for _, due := range found {
		at[due.WorkspaceID] = now.Add(due.Wait)
	}
	known := c.dueAt
	c.dueAt = at
	c.order = slices.DeleteFunc(c.order, func(id uuid.UUID) bool { _, found := at[id]; return !found })
	for _, due := range found {
		if _, had := known[due.WorkspaceID]; !had {
			c.order = append(c.order, due.WorkspaceID)
		}
	}
}

// Next returns the workspaces that the next claim must search, as window. If no workspace has a due
// request, wait is the time until the next request is due. ok is false if there is no workspace.
func (c *Candidates) Next(now time.Time) (window []uuid.UUID, wait time.Duration, ok bool) {
	for _, id := range c.order {
		untilDue := c.dueAt[id].Sub(now)
		switch {
		case untilDue <= 0 && len(window) < WorkspacesPerClaim:
			window = append(window, id)
		case untilDue > 0 && (!ok || untilDue < wait):
			wait, ok = untilDue, true
		}
	}
	if len(window) > 0 {
		return window, 0, true
	}
	return nil, wait, ok
}

// Len returns the number of workspaces.
func (c *Candidates) Len() int { return len(c.order) }

// RecordClaim applies the result of a claim that searched the workspaces in window. The workspaces
// up to the index lastServed move to the end of the order. -1 means all of them.
//
// drainedWorkspaces contains the workspaces without due requests. The value is the time until the
// next request is due, or 0 if this time is not known.
func (c *Candidates) RecordClaim(
	window []uuid.UUID, lastServed int, drainedWorkspaces map[uuid.UUID]time.Duration, now time.Time,
) {
	if lastServed < 0 {
		lastServed = len(window) - 1
	}
	removed := make(map[uuid.UUID]bool, len(drainedWorkspaces))
	for id, wait := range drainedWorkspaces {
		if c.dueAt[id] = now.Add(wait); wait == 0 {
			removed[id] = true
			delete(c.dueAt, id)
		}
	}
	served := make(map[uuid.UUID]bool, lastServed+1)
	for _, id := range window[:lastServed+1] {
		served[id] = true
	}
	order := make([]uuid.UUID, 0, len(c.order))
	for _, id := range c.order {
		if !removed[id] && !served[id] {
			order = append(order, id)
		}
	}
	for _, id := range window[:lastServed+1] {
		if !removed[id] {
			order = append(order, id)
		}
	}
	c.order = order
}
