package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"ringfence.dev/deploy/ringfence/internal/desk"
)

type contacts struct {
	Preview   contactsPreview   `cmd:"" help:"May this number be called now; if not, when next, and by which rule?"`
	Consent   contactsConsent   `cmd:"" help:"Show what is on record for a number."`
	Grant     contactsGrant     `cmd:"" help:"Record that consent was given."`
	Withdraw  contactsWithdraw  `cmd:"" help:"Record that consent was withdrawn."`
	Records   contactsRecords   `cmd:"" help:"List consent records: every opt-out, grant and withdrawal."`
	Decisions contactsDecisions `cmd:"" help:"List why a number was called or not: every gate's decision."`
	Decision  contactsDecision  `cmd:"" help:"Show one decision with all that it was judged by."`
	Erase     contactsErase     `cmd:"" help:"Erase what is known of a person, in every service. Opt-out and consent records stay."`
	Erasures  contactsErasures  `cmd:"" help:"List erasures and how far they are."`
}

// person is the one that a command is about.
type person struct {
	Number string `arg:"" help:"In E.164, +14155550100."`
}

type contactsPreview struct{ person }

func (c contactsPreview) Run(ctx context.Context, o *Office) error {
	return o.Show(ctx, http.MethodGet, o.at("contacts", c.Number, "preview"), nil)
}

type contactsConsent struct{ person }

func (c contactsConsent) Run(ctx context.Context, o *Office) error {
	return o.Show(ctx, http.MethodGet, o.at("contacts", c.Number, "consent"), nil)
}

// consent is what is put on record.
type consent struct {
	person
	Source   string `required:"" help:"Where it was given or withdrawn: \"web form\"."`
	Evidence string `help:"What proves it: text, or a JSON object."`
}

func (c consent) put(ctx context.Context, o *Office, status string) error {
	body := map[string]any{"status": status, "source": c.Source}
	var object map[string]any
	switch {
	case c.Evidence == "":
	case json.Unmarshal([]byte(c.Evidence), &object) == nil:
		body["evidence"] = object
	default:
		body["evidence"] = c.Evidence
	}
	return o.Show(ctx, http.MethodPut, o.at("contacts", c.Number, "consent"), body)
}

type contactsGrant struct{ consent }

func (c contactsGrant) Run(ctx context.Context, o *Office) error { return c.put(ctx, o, "consented") }

type contactsWithdraw struct{ consent }

func (c contactsWithdraw) Run(ctx context.Context, o *Office) error {
	return c.put(ctx, o, "withdrawn")
}

type contactsRecords struct {
	Phone string `help:"Only this number's."`
	desk.Listed
}

func (c contactsRecords) Run(ctx context.Context, o *Office) error {
	return o.List(ctx, o.at("consent-records"), url.Values{"phone": {c.Phone}}, c.Listed,
		"id", "occurred_at", "number=phone_e164", "kind", "before", "after", "source", "actor", "reason")
}

type contactsDecisions struct {
	Phone   string `help:"Only this number's."`
	Request string `help:"Only this call request's, by its id."`
	desk.Listed
}

func (c contactsDecisions) Run(ctx context.Context, o *Office) error {
	return o.List(ctx, o.at("decisions"), url.Values{"phone": {c.Phone}, "call_request_id": {c.Request}}, c.Listed,
		"id", "judged_at", "number=phone_e164", "kind", "result", "rule", "call_at", "policy_version", "call_request_id")
}

type contactsDecision struct {
	ID string `arg:"" help:"The decision's id."`
}

func (c contactsDecision) Run(ctx context.Context, o *Office) error {
	return o.Show(ctx, http.MethodGet, o.at("decisions", c.ID), nil)
}

type contactsErase struct {
	person
	Yes bool `help:"Really."`
}

func (c contactsErase) Run(ctx context.Context, o *Office) error {
	if !c.Yes {
		return fmt.Errorf("this erases name, e-mail, variables, summaries, transcripts and recordings of %s for good: say --yes", c.Number)
	}
	return o.Show(ctx, http.MethodDelete, o.at("contacts", c.Number), nil)
}

type contactsErasures struct {
	Phone string `help:"Only this number's."`
	desk.Listed
}

func (c contactsErasures) Run(ctx context.Context, o *Office) error {
	return o.List(ctx, o.at("erasures"), url.Values{"phone": {c.Phone}}, c.Listed, "id", "requested_at", "done_at", "actor", "services")
}
