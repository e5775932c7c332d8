package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/kit"
)

// maxPartBytes is the maximum size, in bytes, of the body of one import request.
const maxPartBytes = 250 << 10

// importList imports a list of numbers, half of which belong to contacts. It compares the duration
// to a COPY of the same numbers into a table with a primary key.
func (h *gateBench) importList(ctx context.Context) error {
	var file bytes.Buffer
	file.WriteString("name,phone_e164\n")
	listed := func(n int) string { return contactNumber(h.Contacts - h.Listed/2 + n) }
	for n := range h.Listed {
		fmt.Fprintf(&file, "Person %d,%s\n", n, listed(n))
	}
	copied, err := h.copy(ctx, listed)
	if err != nil {
		return err
	}
	base := "/admin/v1/workspaces/" + h.ID + "/opt-out-imports"
	var job struct {
		ID      string `json:"id"`
		Status  string `json:"status"`
		Numbers int    `json:"numbers"`
	}
	if err := h.Admin.Into(ctx, http.MethodPost, base, map[string]any{"reason": "bench"}, http.StatusCreated, &job); err != nil {
		return err
	}
	began, size := time.Now(), file.Len()
	for n := 1; file.Len() > 0; n++ {
		if err := h.put(ctx, fmt.Sprintf("%s/%s/parts/%d", base, job.ID, n), file.Next(maxPartBytes)); err != nil {
			return err
		}
	}
	sent := time.Since(began)
	if err := h.Admin.Into(ctx, http.MethodPost, base+"/"+job.ID+"/start", nil, http.StatusAccepted, &job); err != nil {
		return err
	}
	err = kit.Until(ctx, 30*time.Minute, "the import is done", func() (bool, error) {
		err := h.Admin.Into(ctx, http.MethodGet, base+"/"+job.ID, nil, http.StatusOK, &job)
		return job.Status == "done", err
	})
	if err != nil {
		return err
	}
	if job.Numbers != h.Listed {
		return fmt.Errorf("%d numbers were imported of %d", job.Numbers, h.Listed)
	}
	took := time.Since(began)
	rate, limit := float64(h.Listed)/took.Seconds(), float64(h.Listed)/copied.Seconds()
	fmt.Printf("  import of %d numbers (%d MB, half of them contacts): %.0f rows/s (%s, %s of it sending), %.1f %% of "+
		"a plain COPY of the same numbers: %.0f rows/s\n",
		h.Listed, size>>20, rate, took.Round(100*time.Millisecond), sent.Round(100*time.Millisecond), 100*rate/limit, limit)
	return nil
}

func (h *gateBench) copy(ctx context.Context, listed func(int) string) (time.Duration, error) {
	if _, err := h.db.Exec(ctx, `CREATE TABLE contacts_compliance.bench_list (phone_e164 text COLLATE "C" PRIMARY KEY)`); err != nil {
		return 0, err
	}
	defer func() { _, _ = h.db.Exec(context.WithoutCancel(ctx), `DROP TABLE contacts_compliance.bench_list`) }()
	n, began := 0, time.Now()
	rows := pgx.CopyFromFunc(func() ([]any, error) {
		if n == h.Listed {
			return nil, nil
		}
		n++
		return []any{listed(n - 1)}, nil
	})
	_, err := h.db.CopyFrom(ctx, pgx.Identifier{"contacts_compliance", "bench_list"}, []string{"phone_e164"}, rows)
	return time.Since(began), err
}

func (h *gateBench) put(ctx context.Context, path string, piece []byte) error {
	demo := h.Stack.Demo
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, demo.AdminURL+path, bytes.NewReader(piece))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+demo.AdminToken)
	req.Header.Set("Content-Type", "text/csv")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("PUT %s: %d %s", path, resp.StatusCode, answer)
	}
	return err
}
