package store_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// seedSearch inserts one contact for each name. The first name belongs to the oldest contact. The
// states of the contacts alternate.
const seedSearch = `
INSERT INTO contacts (id, workspace_id, phone_e164, name, name_folded, variables, dnd_status, consent_status,
	updated_at)
SELECT concat(lpad(to_hex(1750000000000 + n), 12, '0'), '70008', substr(md5(n::text), 1, 15))::uuid,
    @workspace, '+1415555' || lpad(n::text, 5, '0'), name, name, json_build_object('note', repeat('x', @bytes)),
    (ARRAY['unknown', 'clean', 'dnd'])[1 + n % 3], (ARRAY['unknown', 'consented'])[1 + n % 2], now()
FROM unnest(@names::text[]) WITH ORDINALITY AS named (name, n)`

var tempBlocks = regexp.MustCompile(`"Temp (Read|Written) Blocks": [1-9]`)

// Every name contains all three-letter pieces of q in another order, so the index returns all
// names. The rows are wide. If the search kept whole rows, Postgres would write a temporary file.
func TestList_SearchWithoutHitsWritesNoTemporaryFile(t *testing.T) {
	t.Parallel()
	_, pool := open(t)
	watched, seen := pgtest.Watch(t, pool)
	st := store.New(watched, chains(t))
	workspace, names := uuid.New(), make([]string, 6000)
	for i := range names {
		names[i] = fmt.Sprintf("maria nana anan maria %d", i)
	}
	owner := pgtest.Owner(t, pool, "contacts_compliance")
	args := pgx.NamedArgs{"workspace": workspace, "names": names, "bytes": 1000}
	if _, err := owner.Exec(t.Context(), seedSearch, args); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(t.Context(), "VACUUM (ANALYZE) contacts"); err != nil {
		t.Fatal(err)
	}
	found, err := st.List(t.Context(), workspace, store.Filter{Name: "anan maria nana"}, page.Request{Limit: 25})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 0 {
		t.Errorf("found %d contacts, want 0", len(found))
	}
	for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
		if _, plans := seen.Pages(t, mode); tempBlocks.MatchString(plans) {
			t.Errorf("%s: the search writes temporary files:\n%s", mode, plans)
		}
	}
}

func TestList_SearchReturnsEveryMatchingContact(t *testing.T) {
	t.Parallel()
	st, pool := open(t)
	random := rand.New(rand.NewPCG(1, 2))
	words := []string{"anan", "maria", "nana", "mari", "zoë", "王", "100%", "o'neil", "an_a", "x"}
	phrase := func(most int) string {
		var picked []string
		for range 1 + random.IntN(most) {
			picked = append(picked, words[random.IntN(len(words))])
		}
		return strings.Join(picked, " ")
	}
	workspace, names := uuid.New(), make([]string, 2500) // more names than recentNamed
	for i := range names {
		names[i] = phrase(4)
	}
	owner := pgtest.Owner(t, pool, "contacts_compliance")
	args := pgx.NamedArgs{"workspace": workspace, "names": names, "bytes": 0}
	if _, err := owner.Exec(t.Context(), seedSearch, args); err != nil {
		t.Fatal(err)
	}
	all := allContacts(t, st, workspace)
	if len(all) != len(names) {
		t.Fatalf("the workspace has %d contacts, want %d", len(all), len(names))
	}
	for range 300 {
		filter := store.Filter{Name: piece(random, phrase(4))}
		filter.DND = []contacts.DND{"", contacts.OptedOut, contacts.Clean}[random.IntN(3)]
		filter.Consent = []contacts.Consent{"", contacts.Consented, contacts.Withdrawn}[random.IntN(3)]
		asked := page.Request{Limit: 1 + random.IntN(40)}
		if random.IntN(2) == 0 {
			asked.After = all[random.IntN(len(all))].ID
		}
		found, err := st.List(t.Context(), workspace, filter, asked)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(expectedNumbers(all, filter, asked), numbers(found)); diff != "" {
			t.Errorf("List(%+v, %+v) (-want +got):\n%s", filter, asked, diff)
		}
	}
}

func piece(random *rand.Rand, text string) string {
	letters := []rune(text)
	start := random.IntN(len(letters))
	return string(letters[start : start+1+random.IntN(len(letters)-start)])
}

func allContacts(t *testing.T, st *store.Store, workspace uuid.UUID) (all []contacts.Contact) {
	t.Helper()
	asked := page.Request{Limit: 100}
	for {
		found, err := st.List(t.Context(), workspace, store.Filter{}, asked)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) <= asked.Limit {
			return append(all, found...)
		}
		all = append(all, found[:asked.Limit]...)
		asked.After = all[len(all)-1].ID
	}
}

// expectedNumbers returns the numbers that List must return. If more contacts than the limit match,
// it returns one number more than the limit, like List.
func expectedNumbers(all []contacts.Contact, f store.Filter, asked page.Request) []phone.Number {
	var kept []contacts.Contact
	below := asked.After == uuid.Nil
	for _, c := range all {
		switch {
		case c.ID == asked.After:
			below = true
		case !below:
		case f.DND != "" && c.DND != f.DND:
		case f.Consent != "" && c.Consent != f.Consent:
		case len(kept) < asked.Rows() && strings.Contains(*c.Name, f.Name):
			kept = append(kept, c)
		}
	}
	return numbers(kept)
}

func numbers(of []contacts.Contact) (numbers []phone.Number) {
	for _, c := range of {
		numbers = append(numbers, c.Number)
	}
	return numbers
}
