package instant_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/instant"
)

func TestOf_IsTheMillisecondOfTheID(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("019aa2e4-9c00-7abc-8def-0123456789ab")
	if got, want := instant.Of(id), time.UnixMilli(0x019aa2e49c00).UTC(); !got.Equal(want) || got.Location() != time.UTC {
		t.Errorf("Of(%s) = %v, want %v", id, got, want)
	}
}

func TestFirstID_BeginsItsMillisecond(t *testing.T) {
	t.Parallel()
	id := uuid.Must(uuid.NewV7())
	at := instant.Of(id)
	if first := instant.FirstID(at); first.String() > id.String() || instant.Of(first) != at {
		t.Errorf("FirstID(%v) = %s, id is %s", at, first, id)
	}
	if next := instant.FirstID(at.Add(time.Millisecond)); next.String() <= id.String() {
		t.Errorf("the next millisecond begins at %s, not after %s", next, id)
	}
	if instant.FirstID(time.Unix(-5, 0)) != uuid.Nil || instant.FirstID(time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)) != uuid.Max {
		t.Error("instants outside of what an id can hold are not clamped")
	}
}
