// Command sbom writes what a Go binary is made of as a CycloneDX bill of materials (https://cyclonedx.org, 1.6): sbom FILE [VERSION] reads what the linker left in it, so it tells of what is
// in the binary and not of what a go.mod names. It holds no time and no serial number: the same binary gives the same bill.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"runtime/debug"
	"strings"
)

func main() {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "sbom takes the path of a Go binary, and the version that it was stamped with")
		os.Exit(2)
	}
	built, err := buildinfo.ReadFile(os.Args[1])
	if err == nil {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		version := built.Main.Version
		if len(os.Args) == 3 {
			version = os.Args[2]
		}
		err = out.Encode(bill(built, version))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "read %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

type document struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	Ref     string `json:"bom-ref,omitempty"`
}

func bill(built *debug.BuildInfo, version string) document {
	whole := document{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Components: []component{module("std", strings.TrimPrefix(built.GoVersion, "go"))}}
	whole.Metadata.Component = component{Type: "application", Name: path.Base(built.Path), Version: version}
	for _, dep := range built.Deps {
		if dep.Replace != nil && dep.Replace.Version != "" {
			dep = dep.Replace
		}
		whole.Components = append(whole.Components, module(dep.Path, dep.Version))
	}
	return whole
}

// module is a Go module with its package URL. One of ours has no version of its own.
func module(name, version string) component {
	c := component{Type: "library", Name: name, Version: version}
	if strings.HasPrefix(name, "ringfence.dev/") {
		c.Version = ""
		return c
	}
	c.PURL = "pkg:golang/" + name + "@" + version
	c.Ref = c.PURL
	return c
}
