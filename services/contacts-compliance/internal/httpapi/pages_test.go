package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
)

func (r *fixture) fetch(t *testing.T, workspace uuid.UUID, query url.Values) func(int, uuid.UUID) testkit.Page {
	caller := serviceauth.Caller{WorkspaceID: workspace, RequestID: workspace, Access: serviceauth.Read}
	return func(limit int, after uuid.UUID) (page testkit.Page) {
		t.Helper()
		query.Set("limit", fmt.Sprint(limit))
		if query.Del("starting_after"); after != uuid.Nil {
			query.Set("starting_after", after.String())
		}
		got := r.send(t, caller, http.MethodGet, "/v1/contacts?"+query.Encode(), "")
		if got.status != http.StatusOK {
			t.Errorf("GET ?%s = %d %s, want 200", query.Encode(), got.status, got.raw)
			return page
		}
		for _, item := range got.body["data"].([]any) {
			page.IDs = append(page.IDs, uuid.MustParse(item.(map[string]any)["id"].(string)))
		}
		page.More = got.body["has_more"].(bool)
		return page
	}
}

const insertContact = `
INSERT INTO contacts (id, workspace_id, phone_e164, name, name_folded, dnd_status, consent_status, email, external_id,
	updated_at)
VALUES ($1, $2, $3, nullif($4, ''), nullif(lower($4), ''), $5, $6, nullif($7, ''), nullif($8, ''), now())`

// For every combination of filters, the pages must contain exactly the matching contacts. During
// the test, other contacts change.
func TestContacts_PagesMatchEveryFilterExactly(t *testing.T) {
	t.Parallel()
	r := start(t)
	type person struct{ number, name, dnd, consent, email, externalID string }
	one := func(rt *rapid.T, label string, values ...string) string {
		return rapid.SampledFrom(values).Draw(rt, label)
	}
	rapid.Check(t, func(rt *rapid.T) {
		workspace, items := uuid.Must(uuid.NewV7()), map[uuid.UUID]person{}
		f := person{
			number: one(rt, "phone", "", "", "", "", "+15005550001"), name: one(rt, "q", "", "", "A", "n_", "%", "ann b"),
			dnd:     one(rt, "dnd", "", "", "unknown", "clean", "dnd"),
			consent: one(rt, "consent", "", "", "unknown", "consented", "withdrawn"),
			email:   one(rt, "email", "", "", "a@b.example"), externalID: one(rt, "external_id", "", "", "7"),
		}
		query := url.Values{}
		for parameter, value := range map[string]string{"phone": f.number, "q": f.name, "dnd_status": f.dnd,
			"consent_status": f.consent, "email": f.email, "external_id": f.externalID} {
			if value != "" {
				query.Set(parameter, value)
			}
		}
		exec := func(sql string, args ...any) {
			if _, err := r.pool.Exec(t.Context(), sql, args...); err != nil {
				rt.Fatal(err)
			}
		}
		testkit.CheckPages(rt, testkit.List{
			Fetch: r.fetch(t, workspace, query),
			Insert: func(rt *rapid.T) uuid.UUID {
				id := uuid.Must(uuid.NewV7())
				p := person{
					number: fmt.Sprintf("+1500555%04d", len(items)), name: one(rt, "name", "", "Ann B", "ann", "an_%", "Bob"),
					dnd: one(rt, "is", "unknown", "dnd"), consent: one(rt, "agrees", "unknown", "consented"),
					email: one(rt, "writes from", "", "a@b.example", "A@b.example"), externalID: one(rt, "is numbered", "", "7", "77"),
				}
				exec(insertContact, id, workspace, p.number, p.name, p.dnd, p.consent, p.email, p.externalID)
				items[id] = p
				return id
			},
			Change: func(rt *rapid.T, id uuid.UUID) {
				p := items[id]
				p.dnd, p.name = one(rt, "is now", "clean", "dnd", "unknown"), one(rt, "is called", "", "Ann B", "Bob")
				exec(`UPDATE contacts SET dnd_status = $2, name = nullif($3, ''), name_folded = nullif(lower($3), '') WHERE id = $1`, id, p.dnd, p.name)
				items[id] = p
			},
			Matches: func(id uuid.UUID) bool {
				p := items[id]
				narrows := func(filter, value string) bool { return filter == "" || filter == value }
				return narrows(f.number, p.number) && narrows(f.dnd, p.dnd) && narrows(f.consent, p.consent) &&
					narrows(f.email, p.email) && narrows(f.externalID, p.externalID) &&
					strings.Contains(strings.ToLower(p.name), strings.ToLower(f.name))
			},
		})
	})
}

func TestContacts_PagingReturnsEachContactOnceDuringInserts(t *testing.T) {
	t.Parallel()
	r := start(t)
	var n atomic.Int64
	testkit.Race(t, func() uuid.UUID {
		return uuid.MustParse(r.create(t, fmt.Sprintf(`{"phone_e164":"+1500%07d","name":"Ann"}`, n.Add(1))))
	}, r.fetch(t, r.workspace, url.Values{"q": {"nn"}}))
}

// A contact that the filter excludes is a valid cursor. An unknown id is not a valid cursor.
func TestContacts_UnknownCursorIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t)
	id := r.create(t, `{"phone_e164":"+15005550001"}`)
	other := r.send(t, serviceauth.Caller{WorkspaceID: uuid.Must(uuid.NewV7()), RequestID: uuid.New(),
		Access: serviceauth.Write}, http.MethodPost, "/v1/contacts", `{"phone_e164":"+15005550001"}`)
	for query, want := range map[string]int{
		"starting_after=" + id:                                     200,
		"dnd_status=dnd&starting_after=" + id:                      200,
		"q=ann&starting_after=" + id:                               200,
		"phone=+15005550002&starting_after=" + id:                  200,
		"starting_after=" + other.body["id"].(string):              422,
		"phone=+15005550001&starting_after=" + uuid.New().String(): 422,
		"q=ann&starting_after=" + uuid.Must(uuid.NewV7()).String(): 422,
		"starting_after=" + r.workspace.String():                   422,
	} {
		if got := r.customer(t, http.MethodGet, "/v1/contacts?"+query, ""); got.status != want {
			t.Errorf("%s: got.status = %v, want %v; got.raw = %s", query, got.status, want, got.raw)
		} else if want == 422 && !strings.HasPrefix(got.message(), "starting_after") {
			t.Errorf(`%s: got.message() = %q, want it to begin with "starting_after"; got.raw = %s`,
				query, got.message(), got.raw)
		}
	}
}
