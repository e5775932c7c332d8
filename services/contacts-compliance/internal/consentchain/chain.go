package consentchain

import (
	"bytes"
	"fmt"

	"github.com/google/uuid"
)

// Break is where a workspace's chain is not what was written. Seq is the first row that is wrong or missing; 0 when it is none of the rows.
type Break struct {
	WorkspaceID uuid.UUID
	Seq         int64
	// ID is the row found at that place; uuid.Nil when there is none.
	ID  uuid.UUID
	Why string
}

func (b Break) String() string {
	text := "workspace " + b.WorkspaceID.String()
	if b.Seq > 0 {
		text += fmt.Sprintf(": row %d", b.Seq)
	}
	if b.ID != uuid.Nil {
		text += " (" + b.ID.String() + ")"
	}
	return text + ": " + b.Why
}

// Chain walks over one workspace's rows, in the order of Seq, and remembers the first break.
type Chain struct {
	workspace uuid.UUID
	keys      *Keys
	at        Link
	witness   Link
	broken    *Break
}

// NewChain begins a walk. start is where the chain starts, nil: at its first row. witness is the farthest place that the log of heads
// knows; the zero Link: none.
func NewChain(workspace uuid.UUID, keys *Keys, start *Mark, witness Link) *Chain {
	c := &Chain{workspace: workspace, keys: keys, witness: witness}
	if start == nil {
		return c
	}
	c.at = start.Link
	if err := keys.CheckStart(workspace, *start); err != nil {
		c.fail(0, uuid.Nil, "its start behind row %d: %v", start.Seq, err)
	}
	return c
}

func (c *Chain) fail(seq int64, id uuid.UUID, format string, args ...any) {
	if c.broken == nil {
		c.broken = &Break{WorkspaceID: c.workspace, Seq: seq, ID: id, Why: fmt.Sprintf(format, args...)}
	}
}

// Next takes the next row. Behind a break nothing is looked at any more.
func (c *Chain) Next(row Row) {
	if c.broken != nil {
		return
	}
	want := c.at.Seq + 1
	switch {
	case row.Seq > want:
		c.fail(want, uuid.Nil, "is missing; the next row there is %d", row.Seq)
	case row.Seq < want:
		c.fail(row.Seq, row.ID, "stands twice, or where the chain no longer reaches")
	default:
		if err := row.follows(c.keys, c.at); err != nil {
			c.fail(row.Seq, row.ID, "%v", err)
		}
	}
	if c.broken != nil {
		return
	}
	c.at = Link{Seq: row.Seq, MAC: row.MAC}
	if c.at.Seq == c.witness.Seq && !bytes.Equal(c.at.MAC, c.witness.MAC) {
		c.fail(row.Seq, row.ID, "differs from the row in the head log")
	}
}

// Reached is the last row that follows the one before it, all the way from the start, and what broke the chain behind it, nil: nothing did.
func (c *Chain) Reached() (Link, *Break) { return c.at, c.broken }

// End says what broke the chain, nil when nothing did. head is the workspace's head as the database keeps it, nil when it keeps none.
func (c *Chain) End(head *Mark) *Break {
	switch {
	case c.broken != nil:
		return c.broken
	case c.witness.Seq > c.at.Seq:
		c.fail(c.at.Seq+1, uuid.Nil, "is missing; the head log has %d rows", c.witness.Seq)
	case head == nil:
		c.fail(0, uuid.Nil, "has rows and no head")
	case c.keys.CheckHead(c.workspace, *head) != nil:
		c.fail(0, uuid.Nil, "its head (%d rows): %v", head.Seq, c.keys.CheckHead(c.workspace, *head))
	case head.Seq > c.at.Seq:
		c.fail(c.at.Seq+1, uuid.Nil, "is missing; the head has %d rows", head.Seq)
	case head.Seq < c.at.Seq, !bytes.Equal(head.MAC, c.at.MAC):
		c.fail(c.at.Seq, uuid.Nil, "is not the head (%d rows)", head.Seq)
	}
	return c.broken
}
