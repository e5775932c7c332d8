package page_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/page"
)

func TestTimeOf_ReturnsTheMillisecondOfTheID(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("019aa2e4-9c00-7abc-8def-0123456789ab")
	if got, want := page.TimeOf(id), time.UnixMilli(0x019aa2e49c00).UTC(); !got.Equal(want) {
		t.Errorf("got = %v, want %v", got, want)
	} else if value := got.Location(); value != time.UTC {
		t.Errorf("got.Location() = %v, want %v", value, time.UTC)
	}
}

func TestFirstID_IsTheLowestOfItsMillisecond(t *testing.T) {
	t.Parallel()
	id := uuid.Must(uuid.NewV7())
	at := page.TimeOf(id)
	if first := page.FirstID(at); first.String() > id.String() {
		t.Errorf("FirstID: first = %q, want at most %q", first.String(), id.String())
	} else if got := page.TimeOf(first); got != at {
		t.Errorf("FirstID: instant.Of(first) = %v, want %v", got, at)
	}
	if next := page.FirstID(at.Add(time.Millisecond)); next.String() <= id.String() {
		t.Errorf("the next millisecond begins at %s, not after %s", next, id)
	}
	if got := page.FirstID(time.Unix(-5, 0)); got != uuid.Nil {
		t.Errorf("instant.FirstID(time.Unix(-5, 0)) = %v, want %v",
			got, uuid.Nil)
	} else if got := page.FirstID(time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)); got != uuid.Max {
		t.Errorf("FirstID of the year 20000 = %v, want %v",
			got, uuid.Max)
	}
}
