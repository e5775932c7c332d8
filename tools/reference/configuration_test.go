package main

import (
	"bytes"
	"os"
	"slices"
	"testing"
)

func TestWriteConfiguration_EqualsTheCommittedPage(t *testing.T) {
	bin := os.Getenv("RINGFENCE_BIN")
	if bin == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("RINGFENCE_BIN is not set")
		}
		t.Skip("RINGFENCE_BIN is not set: run `make verify`, which builds the programs and sets it")
	}
	var current bytes.Buffer
	if err := writeConfiguration(&current, bin); err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile("../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, current.Bytes()) {
		t.Error("docs/reference/configuration.md differs from the output of --help: run make configuration and commit it")
	}
}

func TestParse_ReturnsTheVariablesOfTheTable(t *testing.T) {
	found, err := parse([]byte("x\n\nEnvironment\n  A_URL    (required)       where a is: http://a, b\n  B        a b  \n  C_1  1s  x\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []variable{{"A_URL", "(required)", "where a is: http://a, b"}, {"B", "a b", ""}, {"C_1", "1s", "x"}}
	if !slices.Equal(found, want) {
		t.Errorf("parse = %q, want %q", found, want)
	}
	for _, help := range []string{"no table", "x\nEnvironment\nnonsense\n"} {
		if _, err := parse([]byte(help)); err == nil {
			t.Errorf("parse(%q) succeeded, want an error", help)
		}
	}
}
