package imports_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"ringfence.dev/services/contacts-compliance/internal/imports"
)

func all(t *testing.T, from io.Reader) (numbers, bad []string) {
	t.Helper()
	list := imports.NewListReader(from)
	for {
		number, wrong, err := list.Next()
		if errors.Is(err, io.EOF) {
			return numbers, bad
		}
		if err != nil {
			t.Fatal(err)
		}
		if wrong != nil {
			bad = append(bad, fmt.Sprintf("%d %s", wrong.Line, wrong.Value))
			continue
		}
		numbers = append(numbers, string(number))
	}
}

func TestListReader_ReadsCommonListFormats(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text   string
		numbers, bad []string
	}{
		{name: "an empty file"},
		{name: "only numbers", text: "+14155550100\n+14155550101\n", numbers: []string{"+14155550100", "+14155550101"}},
		{name: "no final line feed, and Windows line endings", text: "+14155550100\r\n\r\n+14155550101",
			numbers: []string{"+14155550100", "+14155550101"}},
		{name: "a byte order mark and headings", text: "\ufeffName;Phone\nAnn;+14155550100\nBo;\n",
			numbers: []string{"+14155550100"},
			bad:     []string{"3 "}},
		{name: "the first column without headings", text: "+14155550100,Ann\nBo,+14155550101\n",
			numbers: []string{"+14155550100"}, bad: []string{"2 Bo"}},
		{name: "quoted fields", text: "name,phone_e164\n\"Smith, Ann\",\"+14155550100\"\n\"Bo\"\"b\",+14155550101\n",
			numbers: []string{"+14155550100", "+14155550101"}},
		{name: "numbers with spaces, dots and brackets", text: "+1 (415) 555-0100\n +44.20.7946.0958 \n",
			numbers: []string{"+14155550100", "+442079460958"}},
		{name: "lines without a country code, a number or ASCII digits",
			text: "4155550100\nphones\n+٤٤٢٠٧٩٤٦\n+1415555010\x00\n\xff\xfe\n",
			bad:  []string{"1 4155550100", "2 phones", "3 +٤٤٢٠٧٩٤٦", "4 +1415555010?", "5 ?"}},
		{name: "a line without the column", text: "name,x,phone\nAnn\nBo,,+14155550100", numbers: []string{"+14155550100"},
			bad: []string{"2 Ann"}},
		{name: "the separator line of a spreadsheet",
			text:    "\ufeffsep=;\r\n\r\n\"Name, first\";Phone\r\nAnn;+14155550100\r\n",
			numbers: []string{"+14155550100"}},
		{name: "a first line that is too long", text: strings.Repeat("x", 20_000) + "\n+14155550100,Ann\n+14155550101\n",
			numbers: []string{"+14155550100", "+14155550101"}, bad: []string{"1 " + strings.Repeat("x", 40) + "…"}},
		{name: "a quoted name with a line break",
			text:    "name,phone\n\"Ann\nSmith\",+14155550100\n\"Bo,+14155550101\n+14155550102,x\n",
			numbers: []string{"+14155550100"}, bad: []string{"2 \"Ann", "4 \"Bo,+14155550101", "5 x"}},
		{name: "spreadsheet formulas", text: "=HYPERLINK(\"http://x\"),1\n@SUM(1)\n-2+3\n+1+14155550100\n",
			bad: []string{"1 =HYPERLINK(\"http://x\")", "2 @SUM(1)", "3 -2+3", "4 +1+14155550100"}},
		{name: "a UTF-16 file", text: "\xff\xfe+\x001\x004\x001\x005\x005\x005\x005\x000\x001\x000\x000\x00\n\x00+\x001\x00",
			bad: []string{"1 ?+?1?4?1?5?5?5?5?0?1?0?0?", "2 ?+?1?"}},
		{name: "a line that is too long", text: "+14155550100\n" + strings.Repeat("9", 20_000) + "\n+14155550101\n",
			numbers: []string{"+14155550100", "+14155550101"}, bad: []string{"2 " + strings.Repeat("9", 40) + "…"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, from := range []io.Reader{strings.NewReader(row.text), iotest.OneByteReader(strings.NewReader(row.text)),
				iotest.DataErrReader(strings.NewReader(row.text))} {
				if numbers, bad := all(t, from); !slices.Equal(numbers, row.numbers) {
					t.Errorf("all: numbers = %v, want %v", numbers, row.numbers)
				} else if !slices.Equal(bad, row.bad) {
					t.Errorf("all: bad = %v, want %v", bad, row.bad)
				}
			}
		})
	}
}

type endless struct {
	piece string
	left  int
}

func (e *endless) Read(into []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	e.left -= len(e.piece)
	n := copy(into, e.piece)
	return n, nil
}

func TestListReader_MemoryDoesNotGrowWithTheFile(t *testing.T) {
	for name, piece := range map[string]string{"endless lines": "+14155550100,Ann,\"x\"\n",
		"one endless line": "99999999999999999999"} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		list, count := imports.NewListReader(&endless{strings.Repeat(piece, 100), 8 << 20}), 0
		for {
			_, _, err := list.Next()
			if err != nil {
				break
			}
			if count++; count%100_000 == 0 {
				runtime.GC()
				if runtime.ReadMemStats(&after); after.HeapAlloc > before.HeapAlloc+4<<20 {
					t.Fatalf("%s: memory grew by %d bytes after %d lines", name, after.HeapAlloc-before.HeapAlloc, count)
				}
			}
		}
		if count == 0 {
			t.Errorf("%s: no line was read", name)
		}
	}
}
