package pg_test

import (
	"reflect"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit/pgtest"
)

func TestPool_StoresUUIDsOfEveryGoTypeUnchanged(t *testing.T) {
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
	if text != a.String() {
		t.Errorf("text = %v, want %v", text, a.String())
	}
	if single != a {
		t.Errorf("single = %v, want %v", single, a)
	}
	if pointer == nil {
		t.Fatalf("pointer = nil, want a value")
	}
	if *pointer != b {
		t.Errorf("pointer = %v, want %v", *pointer, b)
	}
	if missing != nil {
		t.Errorf("missing = %v, want nil", missing)
	}
	if dropped != uuid.Nil {
		t.Errorf("dropped = %v, want %v", dropped, uuid.Nil)
	}
	if !reflect.DeepEqual(list, []uuid.UUID{a, b}) {
		t.Errorf("list = %v, want %v", list, []uuid.UUID{a, b})
	}
	if len(gaps) != 2 {
		t.Fatalf("length of gaps = %v, want 2", len(gaps))
	}
	if gaps[0] == nil {
		t.Fatalf("gaps[0] = nil, want a value")
	}
	if *gaps[0] != a {
		t.Errorf("gaps[0] = %v, want %v", *gaps[0], a)
	}
	if gaps[1] != nil {
		t.Errorf("gaps[1] = %v, want nil", gaps[1])
	}
}

// This test is not parallel, because it counts allocations. Without the codec, an id needs a dozen
// allocations.
func TestPool_UUIDNeedsNoAllocation(t *testing.T) {
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
