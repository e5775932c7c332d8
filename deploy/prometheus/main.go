// Command prometheus writes the alert and recording rules and the trials of every alert (promtool test rules) from deploy/prometheus/internal/alert.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"ringfence.dev/deploy/prometheus/internal/alert"
)

func main() {
	folder := flag.String("to", "deploy/prometheus", "the folder with rules/ and trials/")
	runbooks := flag.String("runbooks", "", "where deploy/runbooks is found by whoever is woken, as an address; empty: its path in this repository")
	shrink := flag.Int("shrink", 1, "divide every time in the rules by this: 60 makes an hour a minute")
	flag.Parse()
	for _, group := range alert.Groups() {
		rules, trials := "rules/"+group.Name+".yml", "trials/"+group.Name+".yml"
		write(filepath.Join(*folder, rules), alert.Render(group, alert.Options{Shrink: *shrink, Runbooks: *runbooks}))
		write(filepath.Join(*folder, trials), alert.Trials(group, "../"+rules))
	}
}

func write(path, text string) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		fail(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "prometheus:", err)
	os.Exit(1)
}
