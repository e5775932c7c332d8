package operator

import (
	"encoding/json"
	"testing"
)

func TestPrintObject_IndentsNestedValues(t *testing.T) {
	const member = `{"id":"7","timings":{"queued_at":"2026-06-04T09:00:00.123Z","talk_seconds":4,"deep":{"x":null}},
		"interests":["price","speed"],"none":[],"nothing":{},
		"attempts":[{"attempt":1,"code":503},{"attempt":2,"error":"refused"}],
		"tools":[{"name":"a","schema":{"type":"object"}},"text"]}`
	const wide = `id         7
timings
  queued_at     2026-06-04 04:00:00 EST
  talk_seconds  4
  deep
    x  -
interests  price, speed
none       []
nothing    {}
attempts
  ATTEMPT  CODE  ERROR
  1        503   -
  2        -     refused
tools
  name  a
  schema
    type  object

  text
`
	d, printed := open(t, false, nil)
	if err := d.Member(json.RawMessage(member)); err != nil {
		t.Fatal(err)
	}
	if got := printed.String(); got != wide {
		t.Errorf("output =\n%s\nwant\n%s", got, wide)
	}
	d, printed = open(t, false, nil)
	d.columns = 20 // the table does not fit
	const list = `{"list":[{"attempt":1,"code":503},{"attempt":2,"error":"refused"}]}`
	if err := d.Member(json.RawMessage(list)); err != nil {
		t.Fatal(err)
	}
	const narrow = "list\n  attempt  1\n  code     503\n\n  attempt  2\n  error    refused\n"
	if got := printed.String(); got != narrow {
		t.Errorf("output in a narrow terminal =\n%s\nwant\n%s", got, narrow)
	}
}
