// Command configuration writes the reference of every variable that the services read, as the services themselves tell it in --help:
//
//	configuration BIN > docs/reference/configuration.md
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "configuration: name the folder that holds the services' binaries")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "configuration:", err)
		os.Exit(1)
	}
}

// programs are what reads an environment, in the order of a call's way.
func programs() []string {
	return []string{"gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher"}
}

// variable is a line of --help.
type variable struct {
	name, standard, help string
}

//go:embed preface.md
var preface string

// write asks every program, and writes what all of them read alike first.
func write(out io.Writer, bin string) error {
	reads := map[string][]variable{}
	readers := map[variable]int{}
	for _, program := range programs() {
		said, err := exec.Command(filepath.Join(bin, program), "--help").Output()
		if err != nil {
			return fmt.Errorf("ask %s for its variables: %w", program, err)
		}
		if reads[program], err = parse(said); err != nil {
			return fmt.Errorf("read what %s says of its variables: %w", program, err)
		}
		for _, v := range reads[program] {
			readers[v]++
		}
	}
	var page bytes.Buffer
	page.WriteString(preface)
	shared := func(v variable) bool { return readers[v] == len(programs()) }
	section(&page, "All services", slices.DeleteFunc(slices.Clone(reads["gateway"]),
		func(v variable) bool { return !shared(v) }))
	for _, program := range programs() {
		section(&page, program, slices.DeleteFunc(reads[program], shared))
	}
	_, err := out.Write(page.Bytes())
	return err
}

func section(page *bytes.Buffer, title string, variables []variable) {
	fmt.Fprintf(page, "\n## %s\n\n| variable | default | meaning |\n|---|---|---|\n", title)
	for _, v := range variables {
		fmt.Fprintf(page, "| `%s` | %s | %s |\n", v.name, strings.ReplaceAll(v.standard, "|", `\|`), strings.ReplaceAll(v.help, "|", `\|`))
	}
}

// line is one of the table: name, what holds unless it is set, and what it means, two spaces apart.
var line = regexp.MustCompile(`^  ([A-Z][A-Z0-9_]*)  +(\S.*?)(?:  +(\S.*))?$`)

func parse(help []byte) (found []variable, err error) {
	_, environment, ok := strings.Cut(string(help), "\nEnvironment\n")
	if !ok {
		return nil, fmt.Errorf("it has no table of the environment: %q", help)
	}
	for text := range strings.Lines(environment) {
		parts := line.FindStringSubmatch(strings.TrimRight(text, " \n"))
		if parts == nil {
			return nil, fmt.Errorf("%q is no variable", text)
		}
		found = append(found, variable{name: parts[1], standard: parts[2], help: parts[3]})
	}
	return found, nil
}
