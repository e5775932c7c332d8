package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

type contacts struct {
	Preview   contactsPreview   `cmd:"" help:"Show whether a number can be called now, and if not, which rule blocks the call and when a call is possible next."`
	Consent   contactsConsent   `cmd:"" help:"Show the consent and the opt-out that are recorded for a number."`
	Grant     contactsGrant     `cmd:"" help:"Record that consent was given."`
	Withdraw  contactsWithdraw  `cmd:"" help:"Record that consent was withdrawn."`
	Records   contactsRecords   `cmd:"" help:"List consent records: every opt-out, grant and withdrawal."`
	Decisions contactsDecisions `cmd:"" help:"List the decisions of every compliance check, which explain why a number was called or not."`
	Decision  contactsDecision  `cmd:"" help:"Show a decision with all data that it is based on."`
	Erase     contactsErase     `cmd:"" help:"Erase the data of a person in every service. Opt-out and consent records are kept."`
	Erasures  contactsErasures  `cmd:"" help:"List erasures with the steps that each service has not completed."`
}

type person struct {
	Number string `arg:"" help:"Phone number in E.164: +14155550100."`
}

type contactsPreview struct{ person }

func (c contactsPreview) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("contacts", c.Number, "preview"), nil)
}

type contactsConsent struct{ person }

func (c contactsConsent) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("contacts", c.Number, "consent"), nil)
}

// consentCommand adds a consent record. A consent record cannot be deleted.
type consentCommand struct {
	person
	Source   string `required:"" help:"Where consent was given or withdrawn: \"web form\"."`
	Evidence string `help:"Evidence of the consent or withdrawal: text, or a JSON object."`
}

// Validate refuses an invalid JSON object, because a stored record cannot be corrected.
func (c consentCommand) Validate() error {
	if begun := strings.TrimSpace(c.Evidence); strings.HasPrefix(begun, "{") && !json.Valid([]byte(begun)) {
		return errors.New("--evidence begins like a JSON object but is not valid JSON")
	}
	return nil
}

func (c consentCommand) put(ctx context.Context, o *WorkspaceClient, status string) error {
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

type contactsGrant struct{ consentCommand }

func (c contactsGrant) Run(ctx context.Context, o *WorkspaceClient) error {
	return c.put(ctx, o, "consented")
}

type contactsWithdraw struct{ consentCommand }

func (c contactsWithdraw) Run(ctx context.Context, o *WorkspaceClient) error {
	return c.put(ctx, o, "withdrawn")
}

type contactsRecords struct {
	Phone string `help:"List only entries of this phone number."`
	Listed
}

func (c contactsRecords) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("consent-records"), url.Values{"phone": {c.Phone}}, c.Listed,
		"id", "occurred_at", "number=phone_e164", "kind", "before", "after", "source", "actor", "reason")
}

type contactsDecisions struct {
	Phone   string `help:"List only entries of this phone number."`
	Request string `help:"List only decisions of the call request with this id."`
	Listed
}

func (c contactsDecisions) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("decisions"), url.Values{"phone": {c.Phone}, "call_request_id": {c.Request}}, c.Listed,
		"id", "judged_at", "number=phone_e164", "kind", "result", "rule", "call_at", "policy_version", "call_request_id")
}

type contactsDecision struct {
	ID string `arg:"" help:"Id of the decision."`
}

func (c contactsDecision) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("decisions", c.ID), nil)
}

type contactsErase struct {
	person
	Confirmation
	reasoned
}

func (c contactsErase) Run(ctx context.Context, o *WorkspaceClient) error {
	if err := c.Confirm(ctx, o.Client, "This erases name, e-mail, variables, summaries, transcripts and recordings of "+
		"%s permanently", c.Number); err != nil {
		return err
	}
	return c.client(o).Show(ctx, http.MethodDelete, o.at("contacts", c.Number), nil)
}

type contactsErasures struct {
	Phone string `help:"List only entries of this phone number."`
	Listed
}

func (c contactsErasures) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("erasures"), url.Values{"phone": {c.Phone}}, c.Listed, "id", "requested_at", "done_at", "actor", "services=services.service", "open=services.open")
}

type optOuts struct {
	Add     optOutsAdd     `cmd:"" help:"Opt numbers out: they are not called again."`
	Import  optOutsImport  `cmd:"" help:"Opt out a list of numbers: a CSV file whose first column is the number."`
	Imports optOutsImports `cmd:"" help:"List imports."`
	Show    optOutsShow    `cmd:"" help:"Show an import with its invalid rows."`
}

type optOutsAdd struct {
	Numbers []string `arg:"" help:"Phone number in E.164: +14155550100."`
	Reason  string   `help:"Reason that is stored with the opt-out."`
}

func (c optOutsAdd) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.importList(ctx, strings.NewReader(strings.Join(c.Numbers, "\n")+"\n"), c.Reason)
}

type optOutsImport struct {
	File   string `arg:"" help:"Name of the file, or - for standard input."`
	Reason string `help:"Reason that is stored with the opt-out."`
}

func (c optOutsImport) Run(ctx context.Context, o *WorkspaceClient) error {
	if c.File == "-" {
		return o.importList(ctx, Stdin(ctx), c.Reason)
	}
	file, err := os.Open(c.File)
	if err != nil {
		return fmt.Errorf("open the list: %w", err)
	}
	defer func() { _ = file.Close() }()
	return o.importList(ctx, file, c.Reason)
}

type optOutsImports struct{ Listed }

func (c optOutsImports) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at(imports), nil, c.Listed, "id", "created_at", "status", "lines", "numbers", "applied", "bad", "actor", "reason")
}

type optOutsShow struct {
	Import string `arg:"" help:"Id of the import."`
}

func (c optOutsShow) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at(imports, c.Import), nil)
}

const (
	imports = "opt-out-imports"
	// partSize is the largest size, in bytes, of the part of a list that one request sends. It is
	// less than the largest body that the gateway accepts.
	partSize = 128 << 10
	// pollInterval is the time between two reads of an import's progress.
	pollInterval = 300 * time.Millisecond
)

type progress struct {
	ID, Status       string
	Applied, Numbers int64
	Bad              int64
	DoneAt           *time.Time `json:"done_at"`
}

// importList sends a list in parts, starts the import, and waits for the end of the import. An
// import that was started continues even after Ctrl-C.
func (o *WorkspaceClient) importList(ctx context.Context, list io.Reader, reason string) error {
	body := map[string]any{}
	if reason != "" {
		body["reason"] = reason
	}
	opened, _, err := o.step(ctx, http.MethodPost, o.at(imports), body)
	if err != nil {
		return err
	}
	if err := o.send(ctx, opened.ID, list); err != nil {
		return err
	}
	now, answer, err := o.step(ctx, http.MethodPost, o.at(imports, opened.ID, "start"), nil)
	for printed := ""; err == nil && now.DoneAt == nil; {
		if far := fmt.Sprintf("%s: %d of %d numbers opted out, %d invalid rows", now.Status, now.Applied, now.Numbers,
			now.Bad); far != printed {
			printed = far
			o.Remark("%s", far)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the import continues without this command: `ringfence opt-outs show %s` prints its progress",
				opened.ID)
		case <-time.After(pollInterval):
		}
		now, answer, err = o.step(ctx, http.MethodGet, o.at(imports, opened.ID), nil)
	}
	if err != nil {
		return err
	}
	if err := o.Member(answer); err != nil {
		return err
	}
	if now.Bad > 0 {
		return fmt.Errorf("%d rows have no valid number and were not imported; %d numbers are opted out: `ringfence "+
			"opt-outs show %s` "+
			"names the rows", now.Bad, now.Applied, opened.ID)
	}
	return nil
}

// send sends the parts of the list. An empty list is an error.
func (o *WorkspaceClient) send(ctx context.Context, id string, list io.Reader) error {
	piece := make([]byte, partSize)
	for part := 1; ; part++ {
		n, err := io.ReadFull(list, piece)
		if n == 0 && part == 1 {
			return errors.New("the list is empty")
		}
		if n > 0 {
			if _, _, err := o.step(ctx, http.MethodPut, o.at(imports, id, "parts", strconv.Itoa(part)), piece[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the list: %w", err)
		}
	}
}

func (o *WorkspaceClient) step(ctx context.Context, method, path string, body any) (now progress, answer json.RawMessage, err error) {
	if answer, err = o.Ask(ctx, method, path, body); err != nil {
		return now, nil, err
	}
	if err := json.Unmarshal(answer, &now); err != nil {
		return now, nil, fmt.Errorf("read the progress of the import: %w", err)
	}
	return now, answer, nil
}
