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

// PreCheckRequest is one pre-check question.
type PreCheckRequest struct {
	store.Question
	// Variables is the request's JSON object; empty: none.
	Variables json.RawMessage
	// At is when the call is wanted; zero or past: now.
	At time.Time
	// Waits is schedule_if_outside_hours.
	Waits bool
}

// Allowed is the answer to a pre-check that passed every gate.
type Allowed struct {
	ContactID uuid.UUID
	Variables contacts.Document
	// ScheduledFor is as asked, or the next opening for a request that may wait.
	ScheduledFor time.Time
	// Erasures is how often the person had been erased when this was allowed.
	Erasures int64
}

// PreCheck runs the reference checks and every gate; when all pass, the contact is found or created and the variables are
// merged. A refusal is an *apierr.Error, and nothing but the decision is written. A request that was allowed before
// gets the same answer again and merges nothing; one that was refused is judged anew, by what is on record now.
func (g *Checks) PreCheck(ctx context.Context, ask PreCheckRequest) (Allowed, error) {
	patch, err := variables(ask.Variables)
	if err != nil {
		return Allowed{}, err
	}
	for {
		known, err := g.store.Known(ctx, ask.Question)
		if err != nil {
			return Allowed{}, err
		}
		if known.PlacedContact != nil {
			return Allowed{
				ContactID: *known.PlacedContact, Variables: known.PlacedVariables, ScheduledFor: *known.PlacedFor, Erasures: known.PlacedErasures,
			}, nil
		}
		allowed, err := g.judgeOnce(ctx, ask, patch, known)
		if !errors.Is(err, store.ErrMoved) {
			return allowed, err
		}
		// Another request changed the contact between our read and our write. Each such round lets one of them through,
		// and the asker's deadline bounds them.
		if ctx.Err() != nil {
			return Allowed{}, fmt.Errorf("settle pre-check %s: %w", ask.CallRequestID, ctx.Err())
		}
	}
}

func variables(raw json.RawMessage) (contacts.Document, error) {
	if len(raw) == 0 {
		return nil, nil //nolint:nilnil // no variables is a common request, not a fault
	}
	return contacts.ParseDocument("variables", raw)
}

func (g *Checks) judgeOnce(ctx context.Context, ask PreCheckRequest, patch contacts.Document, known store.Known) (Allowed, error) {
	merged, err := known.Variables.Merge("variables", patch)
	if err != nil {
		return Allowed{}, err
	}
	f, err := counted(g.facts(ask.Question, known, gate.Facts{
		Stage: gate.PreCheck, At: later(ask.At, known.Now), DeferIfClosed: ask.Waits, Named: named(ask.Question, known),
	}),
		func(since time.Time, calls int) ([]time.Time, error) {
			return g.store.Dials(ctx, ask.Question, since, calls)
		})
	if err != nil {
		return Allowed{}, err
	}
	d := decide(ask.Question, known, f)
	if d.Verdict.Result == gate.Denied {
		if err := g.kept(d, g.store.Keep(ctx, d)); err != nil {
			return Allowed{}, err
		}
		return Allowed{}, apierr.Unprocessable(d.Verdict.Code, "%s", d.Verdict.Message)
	}
	merge := store.KeepVariables
	if len(patch) > 0 {
		merge = store.MergeVariables
	}
	contactID, err := g.store.Place(ctx, d, known, merged, merge)
	if g.kept(d, err) != nil {
		return Allowed{}, err
	}
	return Allowed{ContactID: contactID, Variables: merged, ScheduledFor: d.Verdict.At, Erasures: known.Erasures}, nil
}

// named is what the request's contact_id leads to.
func named(q store.Question, known store.Known) gate.Named {
	switch {
	case q.NamedContact == uuid.Nil:
		return ""
	case known.NamedNumber == nil:
		return gate.NamedNobody
	case *known.NamedNumber != q.Number:
		return gate.NamedOther
	}
	return ""
}
