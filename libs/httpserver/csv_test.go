package httpserver_test

import (
	"testing"

	"ringfence.dev/libs/httpserver"
)

func TestCSVText_ReturnsTextWithoutFormulas(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"=1+1": "'=1+1", "+1-cmd": "'+1-cmd", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)",
		"＝1": "'＝1", "＋1": "'＋1", "－1": "'－1", "＠1": "'＠1",
		"\t=1": "'\t'=1", "\r\n=1": "'\r'\n'=1", "x;=1": "x;'=1", "x\t+1": "x\t'+1", "x\n-1": "x\n'-1",
		`x;"=1`: `x;'"=1`, "x; =1": "x;' =1", ";;=1": ";;'=1", "a;b;＝1": "a;b;'＝1",
		"order 7": "order 7", "a-b;c": "a-b;c", "a=b": "a=b", "": "",
	} {
		if got := httpserver.CSVText(text); got != want {
			t.Errorf("CSVText(%q) = %q, want %q", text, got, want)
		}
	}
}
