package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
)

type wallet struct {
	Show         walletShow         `cmd:"" help:"Show the balance, the held credit and the available credit."`
	TopUp        walletTopUp        `cmd:"" help:"Add credit. A repeated top-up with the same reference adds no credit."`
	Adjust       walletAdjust       `cmd:"" help:"Increase or decrease the balance: adjust -- -2.50 REFERENCE. A repeated adjustment with the same reference has no effect."`
	LowBalance   walletLowBalance   `cmd:"" help:"Set the balance below which the event wallet.low_balance is sent."`
	Transactions walletTransactions `cmd:"" help:"List the ledger entries: top-ups, adjustments, holds, captures and releases."`
	Reconcile    walletReconcile    `cmd:"" help:"Compare the stored balances with the sum of the ledger entries. The exit status is 1 if they differ."`
	Rates        walletRates        `cmd:"" help:"Show the price of a minute for each prefix, and the default price."`
	SetRates     walletSetRates     `cmd:"" help:"Replace the rates by a JSON list of {prefix, per_minute, increment_seconds}."`
}

type walletShow struct{}

func (walletShow) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.Show(ctx, http.MethodGet, o.at("wallet"), nil)
}

// walletEntry is a top-up or an adjustment.
type walletEntry struct {
	Amount    string `arg:"" help:"Amount in the wallet's currency, a decimal number: 25.00."`
	Reference string `arg:"" help:"Unique reference, for example an invoice number. A repeated reference has no effect."`
}

// create creates the entry. If another entry already has the reference, create prints that entry
// and returns an error.
func (e walletEntry) create(ctx context.Context, o *WorkspaceClient, kind string) error {
	answer, err := o.Ask(ctx, http.MethodPost, o.at("wallet", "transactions"), map[string]any{"type": kind, "amount": e.Amount, "reference": e.Reference})
	if err != nil {
		return err
	}
	if err := o.Member(answer); err != nil {
		return err
	}
	var existing struct {
		Type   string
		Amount json.Number
	}
	if err := json.Unmarshal(answer, &existing); err != nil {
		return fmt.Errorf("read the entry: %w", err)
	}
	given, asked := new(big.Rat).SetString(e.Amount)
	booked, known := new(big.Rat).SetString(existing.Amount.String())
	if existing.Type != "" && existing.Type != kind || asked && known && given.Cmp(booked) != 0 {
		return fmt.Errorf("no credit was changed: reference %s is already used by the %s of %s", e.Reference, existing.Type,
			existing.Amount)
	}
	return nil
}

type walletTopUp struct{ walletEntry }

func (c walletTopUp) Run(ctx context.Context, o *WorkspaceClient) error {
	return c.create(ctx, o, "top_up")
}

type walletAdjust struct{ walletEntry }

func (c walletAdjust) Run(ctx context.Context, o *WorkspaceClient) error {
	return c.create(ctx, o, "adjustment")
}

type walletLowBalance struct {
	Threshold string `arg:"" help:"Amount in the wallet's currency, a decimal number: 10.00. off: no event."`
}

func (c walletLowBalance) Run(ctx context.Context, o *WorkspaceClient) error {
	threshold := &c.Threshold
	if c.Threshold == "off" {
		threshold = nil
	}
	return o.Show(ctx, http.MethodPatch, o.at("wallet"), map[string]any{"low_balance_threshold": threshold})
}

type walletTransactions struct{ Listed }

func (c walletTransactions) Run(ctx context.Context, o *WorkspaceClient) error {
	return o.List(ctx, o.at("wallet", "transactions"), nil, c.Listed, "id", "created_at", "type",
		"amount", "reference", "operator", "call_request_id", "call_id")
}

type walletReconcile struct{}

var errBooks = errors.New("the balance differs from the ledger entries")

func (walletReconcile) Run(ctx context.Context, o *WorkspaceClient) error {
	answer, err := o.Ask(ctx, http.MethodGet, o.at("wallet", "reconcile"), nil)
	if err != nil {
		return err
	}
	if err := o.Member(answer); err != nil {
		return err
	}
	var found struct{ OK bool }
	if err := json.Unmarshal(answer, &found); err != nil || !found.OK {
		return errBooks
	}
	return nil
}

type walletRates struct{}

func (walletRates) Run(ctx context.Context, o *WorkspaceClient) error {
	answer, err := o.Ask(ctx, http.MethodGet, o.at("rates"), nil)
	if err != nil {
		return err
	}
	return printRates(o.Client, answer)
}

type walletSetRates struct {
	File string `arg:"" help:"Name of the file, or - for standard input, which requires --yes."`
	Confirmation
}

func (c walletSetRates) Run(ctx context.Context, o *WorkspaceClient) error {
	if c.File == "-" && !c.Yes {
		return errors.New("rates from standard input need --yes: there is no terminal for the confirmation")
	}
	content, err := Contents(ctx, c.File)
	if err != nil {
		return err
	}
	if err := c.Confirm(ctx, o.Client, "This replaces all rates of workspace %s", o.workspace); err != nil {
		return err
	}
	answer, err := o.Ask(ctx, http.MethodPut, o.at("rates"), content)
	if err != nil {
		return err
	}
	return printRates(o.Client, answer)
}

// standardRate is the default rate of billing-wallet, which /admin/v1 does not list.
const standardRate = "0.05 a minute, billed by the second"

// printRates prints a page of rates and the default rate.
func printRates(d *Client, answer json.RawMessage) error {
	var page struct{ Data []json.RawMessage }
	if err := json.Unmarshal(answer, &page); err != nil {
		return fmt.Errorf("read the rates: %w", err)
	}
	if len(page.Data) > 0 || d.JSON() {
		if err := d.Table(page.Data, []string{"prefix", "per_minute", "increment_seconds"}); err != nil {
			return err
		}
	}
	if len(page.Data) == 0 {
		d.Remark("No prefix has its own rate: the default rate for all numbers is %s.", standardRate)
	} else {
		d.Remark("The default rate for numbers without one of these prefixes is %s.", standardRate)
	}
	return nil
}
