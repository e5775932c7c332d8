package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// PreCheckRequest contains the fields of a call request that the pre-check uses.
type PreCheckRequest struct {
	store.Target
	// Variables is the JSON object in the request's member variables. It may be empty.
	Variables json.RawMessage
	// At is the wanted time of the call. If At is zero or in the past, the call is wanted now.
	At time.Time
	// DeferIfClosed is the request's schedule_if_outside_hours.
	DeferIfClosed bool
}

// Allowed is the result of a pre-check that every gate allowed.
type Allowed struct {
	ContactID uuid.UUID
	Variables contacts.Document
	// ScheduledFor is the time of the call: the wanted time, or the next opening if the gates
	// deferred the call.
	ScheduledFor time.Time
	// Erasures is the contact's erasure count at the time of the pre-check.
	Erasures int64
}

// PreCheck evaluates every gate for a new request. If all gates allow the call, PreCheck finds or
// creates the contact, merges the variables and stores the result. If a gate refuses the call,
// PreCheck stores only the decision and returns an *apierr.Error.
//
// If PreCheck is repeated for an allowed request, it returns the stored result.
func (g *Checks) PreCheck(ctx context.Context, req PreCheckRequest) (Allowed, error) {
	patch, err := variables(req.Variables)
	if err != nil {
		return Allowed{}, err
	}
	for {
		inputs, err := g.store.ReadInputs(ctx, req.Target)
		if err != nil {
			return Allowed{}, err
		}
		if inputs.AllowedContact != nil {
			return Allowed{
				ContactID: *inputs.AllowedContact, Variables: inputs.AllowedVariables, ScheduledFor: *inputs.AllowedFor,
				Erasures: inputs.AllowedErasures,
			}, nil
		}
		allowed, err := g.tryPreCheck(ctx, req, patch, inputs)
		if !errors.Is(err, store.ErrInputsChanged) {
			return allowed, err
		}
		// Another request changed the contact between the read and the write. Each time that
		// requests collide like this, at least one of them succeeds. The loop ends at the caller's
		// deadline.
		if ctx.Err() != nil {
			return Allowed{}, fmt.Errorf("pre-check of request %s: %w", req.CallRequestID, ctx.Err())
		}
	}
}

func variables(raw json.RawMessage) (contacts.Document, error) {
	if len(raw) == 0 {
		return nil, nil //nolint:nilnil // a request without variables is valid
	}
	return contacts.ParseDocument("variables", raw)
}

func (g *Checks) tryPreCheck(ctx context.Context, req PreCheckRequest, patch contacts.Document,
	inputs store.Inputs) (Allowed, error) {
	merged, err := inputs.Variables.Merge("variables", patch)
	if err != nil {
		return Allowed{}, err
	}
	f, err := addDials(g.facts(req.Target, inputs, gate.Facts{
		Stage: gate.PreCheck, At: later(req.At, inputs.Now), DeferIfClosed: req.DeferIfClosed,
		Named: contactFault(req.Target, inputs),
	}),
		func(since time.Time, calls int) ([]time.Time, error) {
			return g.store.Dials(ctx, req.Target, since, calls)
		})
	if err != nil {
		return Allowed{}, err
	}
	d := decide(req.Target, inputs, f)
	if d.Outcome.Result == gate.Denied {
		if err := g.countStored(d, g.store.SaveDecision(ctx, d)); err != nil {
			return Allowed{}, err
		}
		return Allowed{}, apierr.Unprocessable(d.Outcome.Code, "%s", d.Outcome.Message)
	}
	merge := store.KeepVariables
	if len(patch) > 0 {
		merge = store.MergeVariables
	}
	contactID, err := g.store.SavePreCheck(ctx, d, inputs, merged, merge)
	if g.countStored(d, err) != nil {
		return Allowed{}, err
	}
	return Allowed{ContactID: contactID, Variables: merged, ScheduledFor: d.Outcome.At, Erasures: inputs.Erasures}, nil
}

// contactFault returns the fault of the request's contact_id, or "" if the contact_id is valid or
// absent.
func contactFault(q store.Target, inputs store.Inputs) gate.Named {
	switch {
	case q.NamedContact == uuid.Nil:
		return ""
	case inputs.NamedNumber == nil:
		return gate.NamedUnknown
	case *inputs.NamedNumber != q.Number:
		return gate.NamedOther
	}
	return ""
}
