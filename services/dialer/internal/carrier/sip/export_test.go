package sip

import "github.com/google/uuid"

// Answers reports whether a trunk has answered OPTIONS, so that calls are offered to it.
func (c *Carrier) Answers(id uuid.UUID) bool {
	o := c.tended.care(id)
	return o != nil && o.upkeep.Answered()
}

// Accept notes that a trunk took a call.
func (c *Carrier) Accept(id uuid.UUID) { c.tended.care(id).heard(nil) }
