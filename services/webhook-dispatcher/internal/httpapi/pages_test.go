package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/libs/testkit"
)

func (h *fixture) fetch(workspace uuid.UUID) func(int, uuid.UUID) testkit.Page {
	return func(limit int, after uuid.UUID) (page testkit.Page) {
		h.t.Helper()
		path := fmt.Sprintf("%s?limit=%d", collection, limit)
		if after != uuid.Nil {
			path += "&starting_after=" + after.String()
		}
		got := h.customer(workspace, http.MethodGet, path, "")
		if got.status != http.StatusOK {
			h.t.Errorf("%s = %d %v", path, got.status, got.body)
			return page
		}
		for _, id := range got.list() {
			page.IDs = append(page.IDs, uuid.MustParse(id))
		}
		page.More = got.body["has_more"].(bool)
		return page
	}
}

// createPaused creates a paused subscription. A workspace can have only five active subscriptions.
func (h *fixture) createPaused(workspace uuid.UUID) uuid.UUID {
	h.t.Helper()
	id, _ := h.create(workspace)
	h.customer(workspace, http.MethodPatch, collection+"/"+id, `{"status":"paused"}`)
	return uuid.MustParse(id)
}

// insertPaused inserts a subscription directly into the table, because the API limits the number of
// subscriptions.
func (h *fixture) insertPaused(workspace uuid.UUID) uuid.UUID {
	h.t.Helper()
	id := uuid.Must(uuid.NewV7())
	if _, err := h.pool.Exec(h.t.Context(), `
		WITH added AS (
		    INSERT INTO subscriptions (id, workspace_id, name, url, events, status, secret_sealed, secret_last4)
		    VALUES ($1, $2, 'a', 'https://example.com/', '{call.completed}', 'paused', 'x', 'aaaa')
		)
		INSERT INTO subscription_health (subscription_id) VALUES ($1)`, id, workspace); err != nil {
		h.t.Error(err)
	}
	return id
}

func TestSubscriptions_PagesOfAnySizeAreComplete(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	rapid.Check(t, func(rt *rapid.T) {
		workspace := uuid.Must(uuid.NewV7())
		testkit.CheckPages(rt, testkit.List{
			Fetch:  h.fetch(workspace),
			Insert: func(*rapid.T) uuid.UUID { return h.createPaused(workspace) },
			Change: func(_ *rapid.T, id uuid.UUID) {
				for _, status := range []string{"active", "paused"} {
					h.customer(workspace, http.MethodPatch, collection+"/"+id.String(), `{"status":"`+status+`"}`)
				}
			},
			Matches: func(uuid.UUID) bool { return true },
		})
	})
}

func TestSubscriptions_PagingReturnsEachItemOnceDuringInserts(t *testing.T) {
	t.Parallel()
	h, workspace := newFixture(t), uuid.Must(uuid.NewV7())
	testkit.Race(t, func() uuid.UUID { return h.insertPaused(workspace) }, h.fetch(workspace))
}

func TestSubscriptions_CursorsOfOtherListsAreRejected(t *testing.T) {
	t.Parallel()
	h, workspace := newFixture(t), uuid.Must(uuid.NewV7())
	deleted, other := h.createPaused(workspace), h.createPaused(uuid.Must(uuid.NewV7()))
	h.customer(workspace, http.MethodDelete, collection+"/"+deleted.String(), "")
	for name, cursor := range map[string]uuid.UUID{"a deleted subscription": deleted,
		"a subscription of another workspace": other, "an unknown id": uuid.Must(uuid.NewV7()),
		"the id of the workspace": workspace} {
		got := h.customer(workspace, http.MethodGet, collection+"?starting_after="+cursor.String(), "")
		wantStatus(t, "cursor "+name, got, 422, "validation_error")
		if !strings.HasPrefix(got.message(), "starting_after ") {
			t.Errorf("cursor %s: message = %q, want it to name starting_after", name, got.message())
		}
	}
}
