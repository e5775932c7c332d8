package pg_test

import (
	"reflect"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/pgtest"
)

// TestPool_UUIDsOfEveryShape sends ids and takes them back: single, as pointer, in arrays, missing.
func TestPool_UUIDsOfEveryShape(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, schema, track)
	a, b := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	var none *uuid.UUID
	var text string
	var single, dropped uuid.UUID
	var pointer, missing *uuid.UUID
	var list []uuid.UUID
	var gaps []*uuid.UUID
	err := pool.QueryRow(t.Context(), `SELECT $1::uuid::text, $1::uuid, $2::uuid, $3::uuid, $4::uuid[], $5::uuid[], NULL::uuid`,
		a, &b, none, []uuid.UUID{a, b}, []*uuid.UUID{&a, nil}).Scan(&text, &single, &pointer, &missing, &list, &gaps, &dropped)
	if err != nil {
		t.Fatal(err)
	}
	if text != a.String() || single != a || pointer == nil || *pointer != b || missing != nil || dropped != uuid.Nil {
		t.Errorf("came back as %s %s %v %v %s, want %s %s nil nil-uuid", text, single, pointer, missing, dropped, a, b)
	}
	if !reflect.DeepEqual(list, []uuid.UUID{a, b}) || len(gaps) != 2 || gaps[0] == nil || *gaps[0] != a || gaps[1] != nil {
		t.Errorf("arrays came back as %v %v", list, gaps)
	}
}

// TestPool_AUUIDCostsNoMoreThanItsBytes is not parallel: it counts allocations. Without the codec an id costs a dozen more.
func TestPool_AUUIDCostsNoMoreThanItsBytes(t *testing.T) {
	pool := pgtest.New(t, schema, track)
	a := uuid.Must(uuid.NewV7())
	var single uuid.UUID
	with := testing.AllocsPerRun(200, func() {
		if err := pool.QueryRow(t.Context(), `SELECT $1::uuid`, a).Scan(&single); err != nil {
			t.Error(err)
		}
	})
	plain := testing.AllocsPerRun(200, func() {
		if err := pool.QueryRow(t.Context(), `SELECT $1::bytea`, a[:]).Scan(new([]byte)); err != nil {
			t.Error(err)
		}
	})
	if with > plain+2 {
		t.Errorf("a UUID costs %.0f allocations and as many bytes cost %.0f", with, plain)
	}
}
