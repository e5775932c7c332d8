package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// serviceOrder returns the services in the order in which a call passes through them.
func serviceOrder() []string {
	return []string{"gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher", console}
}

// console is the service without a database and a broker. The page lists its variables separately
// from the common variables of the other services.
const console = "console"

type variable struct {
	name, defaultValue, help string
}

//go:embed preface.md
var preface string

// writeConfiguration writes docs/reference/configuration.md. It first lists the variables that all
// services except the console read in the same way.
func writeConfiguration(out io.Writer, bin string) error {
	reads := map[string][]variable{}
	readers := map[variable]int{}
	for _, program := range serviceOrder() {
		output, err := exec.Command(filepath.Join(bin, program), "--help").Output()
		if err != nil {
			return fmt.Errorf("run %s --help: %w", program, err)
		}
		if reads[program], err = parse(output); err != nil {
			return fmt.Errorf("parse the output of %s --help: %w", program, err)
		}
		if program == console {
			continue
		}
		for _, v := range reads[program] {
			readers[v]++
		}
	}
	var page bytes.Buffer
	page.WriteString(preface)
	shared := func(v variable) bool { return readers[v] == len(serviceOrder())-1 }
	section(&page, "All services except the console", slices.DeleteFunc(slices.Clone(reads["gateway"]),
		func(v variable) bool { return !shared(v) }))
	for _, program := range serviceOrder() {
		own := reads[program]
		if program != console {
			own = slices.DeleteFunc(own, shared)
		}
		section(&page, program, own)
	}
	_, err := out.Write(page.Bytes())
	return err
}

func section(page *bytes.Buffer, title string, variables []variable) {
	fmt.Fprintf(page, "\n## %s\n\n| variable | default | meaning |\n|---|---|---|\n", title)
	for _, v := range variables {
		fmt.Fprintf(page, "| `%s` | %s | %s |\n", v.name, escapeCell(v.defaultValue), escapeCell(v.help))
	}
}

func escapeCell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// helpLine matches a line of the table: name, default and meaning, with two or more spaces between
// them.
var helpLine = regexp.MustCompile(`^  ([A-Z][A-Z0-9_]*)  +(\S.*?)(?:  +(\S.*))?$`)

func parse(help []byte) (found []variable, err error) {
	_, environment, ok := strings.Cut(string(help), "\nEnvironment\n")
	if !ok {
		return nil, fmt.Errorf("no section Environment in %q", help)
	}
	for text := range strings.Lines(environment) {
		parts := helpLine.FindStringSubmatch(strings.TrimRight(text, " \n"))
		if parts == nil {
			return nil, fmt.Errorf("%q does not describe a variable", text)
		}
		found = append(found, variable{name: parts[1], defaultValue: parts[2], help: parts[3]})
	}
	return found, nil
}
