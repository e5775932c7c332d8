package consentchain

import (
	"bytes"
	"fmt"

	"github.com/google/uuid"
)

// Break is the first error in a workspace's chain. Seq is the number of the wrong or missing row.
// Seq is 0 if the error is not in a row.
type Break struct {
	WorkspaceID uuid.UUID
	Seq         int64
	// ID is the id of the wrong row. It is uuid.Nil if the row is missing.
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

// Verifier verifies the rows of one workspace in the order of Seq and keeps the first break.
type Verifier struct {
	workspace uuid.UUID
	keys      *Keys
	last      Link
	logged    Link
	broken    *Break
}

// NewVerifier returns a verifier for a workspace. start is the signed start of the chain, or nil if
// no rows were dropped. lastLogged is the last row of the chain in the head log, or the zero Link.
func NewVerifier(workspace uuid.UUID, keys *Keys, start *SignedLink, lastLogged Link) *Verifier {
	c := &Verifier{workspace: workspace, keys: keys, logged: lastLogged}
	if start == nil {
		return c
	}
	c.last = start.Link
	if err := keys.CheckStart(workspace, *start); err != nil {
		c.fail(0, uuid.Nil, "its start after row %d: %v", start.Seq, err)
	}
	return c
}

func (c *Verifier) fail(seq int64, id uuid.UUID, format string, args ...any) {
	if c.broken == nil {
		c.broken = &Break{WorkspaceID: c.workspace, Seq: seq, ID: id, Why: fmt.Sprintf(format, args...)}
	}
}

// Add verifies the next row. After a break it ignores all rows.
func (c *Verifier) Add(row Row) {
	if c.broken != nil {
		return
	}
	want := c.last.Seq + 1
	switch {
	case row.Seq > want:
		c.fail(want, uuid.Nil, "is missing; the next row is %d", row.Seq)
	case row.Seq < want:
		c.fail(row.Seq, row.ID, "is duplicated, or its number is too low")
	default:
		if err := row.verifyAfter(c.keys, c.last); err != nil {
			c.fail(row.Seq, row.ID, "%v", err)
		}
	}
	if c.broken != nil {
		return
	}
	c.last = Link{Seq: row.Seq, MAC: row.MAC}
	if c.last.Seq == c.logged.Seq && !bytes.Equal(c.last.MAC, c.logged.MAC) {
		c.fail(row.Seq, row.ID, "differs from the row in the head log")
	}
}

// VerifiedTo returns the last row before the first break, and the break. If there is no break, it
// returns the last row and nil.
func (c *Verifier) VerifiedTo() (Link, *Break) { return c.last, c.broken }

// Finish compares the end of the chain with the stored head and returns the break, or nil. head is
// nil if the database has no head of the workspace.
func (c *Verifier) Finish(head *SignedLink) *Break {
	switch {
	case c.broken != nil:
		return c.broken
	case c.logged.Seq > c.last.Seq:
		c.fail(c.last.Seq+1, uuid.Nil, "is missing; the head log has %d rows", c.logged.Seq)
	case head == nil:
		c.fail(0, uuid.Nil, "has rows and no head")
	case c.keys.CheckHead(c.workspace, *head) != nil:
		c.fail(0, uuid.Nil, "its head (%d rows): %v", head.Seq, c.keys.CheckHead(c.workspace, *head))
	case head.Seq > c.last.Seq:
		c.fail(c.last.Seq+1, uuid.Nil, "is missing; the head has %d rows", head.Seq)
	case head.Seq < c.last.Seq, !bytes.Equal(head.MAC, c.last.MAC):
		c.fail(c.last.Seq, uuid.Nil, "is not the head (%d rows)", head.Seq)
	}
	return c.broken
}
