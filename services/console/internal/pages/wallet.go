package pages

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) walletRoutes() []route {
	return []route{
		{"GET /w/{workspace}/wallet", showWallet},
		{"GET /w/{workspace}/wallet/usage.csv", downloadUsage},
		{"POST /w/{workspace}/wallet/transactions", topUp},
	}
}

// walletBalance is the wallet as the operator API returns it.
type walletBalance struct {
	Balance             json.Number        `json:"balance"`
	Held                json.Number        `json:"held"`
	Spendable           json.Number        `json:"spendable"`
	Currency            string             `json:"currency"`
	LastTransactionAt   *openapi.Timestamp `json:"last_transaction_at"`
	LowBalanceThreshold *json.Number       `json:"low_balance_threshold"`
}

// transaction is a transaction of the ledger, as the operator API returns it.
type transaction struct {
	ID            uuid.UUID         `json:"id"`
	Type          string            `json:"type"`
	Amount        string            `json:"amount"`
	Reference     *string           `json:"reference"`
	Operator      *string           `json:"operator"`
	CallRequestID *uuid.UUID        `json:"call_request_id"`
	CallID        *uuid.UUID        `json:"call_id"`
	CreatedAt     openapi.Timestamp `json:"created_at"`
}

type walletData struct {
	Wallet   walletBalance
	Types    []string
	Ledger   gateway.Page[transaction]
	Last     string // the id of the last transaction, if there are more
	Month    string // such as 2026-06
	Spending spending
	// Key is the reference of the top-up, so a form that is submitted twice adds the credit once.
	Key string
}

// spending is the usage of a month by day, agent and calling code.
type spending struct {
	Credits float64
	Calls   int
	Days    []share
	Agents  []share
	Codes   []share
}

// share is a part of the spending of a month.
type share struct {
	Name    string
	Calls   int
	Credits float64
}

func showWallet(v *visit) (view, error) {
	data := walletData{
		Types: []string{"top_up", "adjustment", "hold", "capture", "release"},
		Month: v.month(),
		Key:   uuid.NewString(),
	}
	err := concurrently(
		read(v, &data.Wallet, v.admin("/wallet"), nil),
		read(v, &data.Ledger, v.admin("/wallet/transactions"), v.listQuery("type")),
		func() (err error) {
			data.Spending, err = v.readSpending(data.Month)
			return err
		},
	)
	if data.Ledger.HasMore {
		data.Last = data.Ledger.Data[len(data.Ledger.Data)-1].ID.String()
	}
	return view{template: "wallet", title: "wallet.title", nav: "wallet", data: data}, err
}

// month returns the month of the page. The default is the current month in UTC, because the usage
// has UTC months.
func (v *visit) month() string {
	if at, err := time.Parse("2006-01", v.query("month")); err == nil {
		return at.Format("2006-01")
	}
	return time.Now().UTC().Format("2006-01")
}

func (v *visit) fetchUsage(month string) (*http.Response, error) {
	return v.Fetch(v.r.Context(), gateway.Request{Path: "/v1/usage", Query: url.Values{"month": {month}}})
}

func (v *visit) readSpending(month string) (spending, error) {
	response, err := v.fetchUsage(month)
	if err != nil {
		return spending{}, err
	}
	defer func() { _ = response.Body.Close() }()
	return readUsage(response.Body)
}

// usageFields is the number of columns of the usage: date, direction, agent_id, agent_name,
// calling_code, calls, answered, talk_seconds, credits.
const usageFields = 9

func readUsage(file io.Reader) (sum spending, err error) {
	rows := csv.NewReader(file)
	rows.FieldsPerRecord = usageFields
	if _, err := rows.Read(); err != nil {
		return sum, fmt.Errorf("read the header of the usage: %w", err)
	}
	days, agents, codes := map[string]share{}, map[string]share{}, map[string]share{}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return sum, fmt.Errorf("read the usage: %w", err)
		}
		calls, callsErr := strconv.Atoi(row[5])
		credits, creditsErr := strconv.ParseFloat(row[8], 64)
		if err := errors.Join(callsErr, creditsErr); err != nil {
			return sum, fmt.Errorf("read the usage: %w", err)
		}
		sum.Calls, sum.Credits = sum.Calls+calls, sum.Credits+credits
		for _, part := range []struct {
			sums      map[string]share
			key, name string
		}{{days, row[0], row[0]}, {agents, row[2], cmp.Or(row[3], row[2][:min(8, len(row[2]))])}, {codes, row[4],
			"+" + row[4]}} {
			known := part.sums[part.key]
			part.sums[part.key] = share{part.name, known.Calls + calls, known.Credits + credits}
		}
	}
	sum.Days, sum.Agents, sum.Codes = sortShares(days), sortShares(agents), sortShares(codes)
	slices.SortFunc(sum.Days, func(a, b share) int { return cmp.Compare(a.Name, b.Name) })
	return sum, nil
}

// sortShares returns the shares with the highest spending first.
func sortShares(sums map[string]share) (shares []share) {
	for _, s := range sums {
		shares = append(shares, s)
	}
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.Credits, a.Credits), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Name, b.Name))
	})
	return shares
}

// Top is the highest spending of a day. It is at least a small number, so that a chart can divide
// by it.
func (s spending) Top() float64 {
	top := 0.000001
	for _, d := range s.Days {
		top = max(top, d.Credits)
	}
	return top
}

// downloadUsage sends the CSV file of the gateway to the browser. The gateway has already protected
// its cells against formulas.
func downloadUsage(v *visit) (view, error) {
	response, err := v.fetchUsage(v.month())
	if err != nil {
		return view{}, err
	}
	defer func() { _ = response.Body.Close() }()
	for _, name := range []string{"Content-Type", "Content-Disposition"} {
		v.w.Header().Set(name, response.Header.Get(name))
	}
	if _, err := io.Copy(v.w, response.Body); err != nil {
		panic(http.ErrAbortHandler) // the file is not complete
	}
	return view{written: true}, nil
}

// topUp adds credit. The reference contains the key of the form. So if the browser sends the form
// twice, the credit is added once.
func topUp(v *visit) (view, error) {
	if !v.confirmed(v.form("amount")) {
		return view{redirect: v.path("wallet"), done: "not_confirmed"}, nil
	}
	reference := v.Reason + " (console " + v.form("key") + ")"
	_, err := gateway.Post[transaction](v.r.Context(), v.Session, v.admin("/wallet/transactions"),
		map[string]string{"type": "top_up", "amount": v.form("amount"), "reference": reference})
	return view{redirect: v.path("wallet"), done: "topped_up"}, err
}
