package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

const seedContacts = `
INSERT INTO contacts (id, workspace_id, phone_e164, name, name_folded, email, external_id, dnd_status, consent_status,
	updated_at)
SELECT concat(lpad(to_hex(1750000000000 + n), 12, '0'), '70008', substr(md5(n::text), 1, 15))::uuid,
    CASE WHEN n % 10000 = 11 THEN @small::uuid ELSE @large::uuid END, '+1415555' || lpad(n::text, 5, '0'), called,
        called, CASE WHEN n % 3 = 0 THEN 'shared@example.com' ELSE concat(n, '@example.com') END, concat('c-', n),
    CASE WHEN n < 4 THEN 'dnd' ELSE 'unknown' END, CASE WHEN n % 2 = 0 THEN 'consented' ELSE 'unknown' END, now()
FROM generate_series(1, 30000) AS n,
    LATERAL (SELECT CASE WHEN n = 2 THEN 'zoë 100%' WHEN n % 3 = 0 THEN concat('ann ', n) ELSE concat('bob ', n)
        END AS called) AS c`

// Rare states and rare names must be found without reading all contacts of the workspace. One name
// is rare in the selected state, but common in another state.
func TestList_NoFilterReadsTheWholeWorkspace(t *testing.T) {
	t.Parallel()
	_, pool := open(t)
	watched, seen := pgtest.Watch(t, pool)
	st := store.New(watched, chains(t))
	large, small, none := uuid.New(), uuid.New(), uuid.New()
	owner := pgtest.Owner(t, pool, "contacts_compliance")
	if _, err := owner.Exec(t.Context(), seedContacts, pgx.NamedArgs{"large": large, "small": small}); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(t.Context(), "VACUUM (ANALYZE) contacts"); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		filter store.Filter
		// found is the number of contacts that List returns for the large workspace: at most one
		// more than a page
		found int
		// pages is the maximum number of database pages that List may read; a search by name reads
		// the newest 2000 contacts
		pages int
	}{
		{name: "no filter", filter: store.Filter{}, found: 26, pages: 150},
		{name: "a rare state", filter: store.Filter{DND: contacts.OptedOut}, found: 3, pages: 150},
		{name: "a state that no contact has", filter: store.Filter{Consent: contacts.Withdrawn}, pages: 150},
		{name: "two states", filter: store.Filter{DND: contacts.OptedOut, Consent: contacts.Consented}, found: 1, pages: 150},
		{name: "a number", filter: store.Filter{Number: "+141555500002"}, found: 1, pages: 50},
		{name: "a number with a state that it does not have",
			filter: store.Filter{Number: "+141555500002", DND: contacts.Clean}, pages: 50},
		{name: "a number with a name that it does not have",
			filter: store.Filter{Number: "+141555500002", Name: "bob"}, pages: 50},
		{name: "a rare email", filter: store.Filter{Email: new("5@example.com")}, found: 1, pages: 150},
		{name: "an email that no contact has", filter: store.Filter{Email: new("0@example.com")}, pages: 150},
		{name: "an email of a third of the contacts", filter: store.Filter{Email: new("shared@example.com")}, found: 26,
			pages: 150},
		{name: "a common email in a rare state",
			filter: store.Filter{Email: new("shared@example.com"), DND: contacts.OptedOut}, found: 1, pages: 150},
		{name: "an external_id", filter: store.Filter{ExternalID: new("c-5")}, found: 1, pages: 150},
		{name: "an external_id with an email that it does not have",
			filter: store.Filter{ExternalID: new("c-5"), Email: new("shared@example.com")}, pages: 150},
		{name: "an external_id with a name", filter: store.Filter{ExternalID: new("c-5"), Name: "bob"}, found: 1, pages: 150},
		{name: "a number with an email",
			filter: store.Filter{Number: "+141555500005", Email: new("5@example.com")}, found: 1, pages: 50},
		{name: "a common name", filter: store.Filter{Name: "ANN"}, found: 26, pages: 300},
		{name: "a rare name", filter: store.Filter{Name: "oë 1"}, found: 1, pages: 800},
		{name: "a rare letter", filter: store.Filter{Name: "Ë"}, found: 1, pages: 800},
		{name: "a rare special character", filter: store.Filter{Name: "0%"}, found: 1, pages: 800},
		{name: "a name that no contact has", filter: store.Filter{Name: "_nn"}, pages: 800},
		{name: "the longest possible name", filter: store.Filter{Name: strings.Repeat("ann ", 50)}, pages: 800},
		{name: "a common name in a rare state", filter: store.Filter{Name: "o", DND: contacts.OptedOut}, found: 2,
			pages: 800},
	}
	for _, tt := range tests {
		for of, workspace := range map[string]uuid.UUID{"large": large, "small": small, "empty": none} {
			t.Run(tt.name+"/"+of, func(t *testing.T) {
				seen.Forget()
				found, err := st.List(t.Context(), workspace, tt.filter, page.Request{Limit: 25})
				if err != nil {
					t.Fatalf("List: %v", err)
				}
				if of == "large" && len(found) != tt.found {
					t.Fatalf("length of found = %d, want %d", len(found), tt.found)
				}
				for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
					n, plans := seen.Pages(t, mode)
					if n == 0 {
						t.Errorf("%s: %d pages, want at most %d\n%s", mode, n, tt.pages, plans)
					}
					if n > tt.pages {
						t.Errorf("%s: %d pages, want at most %d\n%s", mode, n, tt.pages, plans)
					}
					if strings.Contains(plans, `"Seq Scan"`) {
						t.Errorf("%s: plan = %s, want it without %q", mode, plans, `"Seq Scan"`)
					}
				}
			})
		}
	}
}

// The search ignores upper and lower case in every alphabet.
func TestList_SearchTreatsPatternCharactersAsText(t *testing.T) {
	t.Parallel()
	st, _ := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		// few letters, so that names and searches match often
		letters := rapid.SampledFrom([]string{`aA%_\`, `éÉσςΣß王`, `İı'"* .`}).Draw(rt, "letters")
		text := func(fewest, most int) *rapid.Generator[string] {
			return rapid.StringOfN(rapid.SampledFrom([]rune(letters)), fewest, most, -1)
		}
		workspace := uuid.Must(uuid.NewV7())
		names := map[uuid.UUID]string{}
		for i, name := range rapid.SliceOfN(text(0, 6), 4, 8).Draw(rt, "names") {
			c := contacts.Contact{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace,
				Number: phone.Number(fmt.Sprintf("+1500555%04d", i)), Name: &name}
			if _, _, err := st.Create(t.Context(), c); err != nil {
				rt.Fatal(err)
			}
			names[c.ID] = name
		}
		asked := text(1, 3).Draw(rt, "q")
		found, err := st.List(t.Context(), workspace, store.Filter{Name: asked}, page.Request{Limit: 100})
		if err != nil {
			rt.Fatal(err)
		}
		got := map[uuid.UUID]bool{}
		for _, c := range found {
			got[c.ID] = true
		}
		for id, name := range names {
			if want := strings.Contains(contacts.Fold(name), contacts.Fold(asked)); got[id] != want {
				rt.Errorf("search for %q: name %q found = %v, want %v", asked, name, got[id], want)
			}
		}
	})
}

func TestList_SearchLongerThanAnyNameFindsNothing(t *testing.T) {
	t.Parallel()
	st, _ := open(t)
	found, err := st.List(t.Context(), uuid.New(), store.Filter{Name: strings.Repeat("x", 1<<20)}, page.Request{Limit: 25})
	if err != nil {
		t.Errorf("List: %v", err)
	} else if len(found) != 0 {
		t.Errorf("found = %v, want none", found)
	}
	long := strings.Repeat("é", contacts.MaxName)
	workspace := uuid.New()
	if _, _, err := st.Create(t.Context(), contacts.Contact{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace,
		Number: number, Name: &long}); err != nil {
		t.Fatal(err)
	}
	if found, err := st.List(t.Context(), workspace, store.Filter{Name: strings.ToUpper(long)},
		page.Request{Limit: 25}); err != nil {
		t.Errorf("List: %v", err)
	} else if len(found) != 1 {
		t.Errorf("List: length of found = %d, want 1", len(found))
	}
}
