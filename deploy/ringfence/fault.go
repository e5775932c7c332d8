package main

import (
	"io"

	"ringfence.dev/deploy/ringfence/internal/desk"
)

// fault is why a command did not do what it should, as /admin/v1 says it.
type fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (f fault) String() string { return f.Message }

func (f fault) tell(to io.Writer, asJSON bool) {
	if !asJSON {
		f.Message = "ringfence: " + f.Message
	}
	desk.Aside(to, asJSON, "error", f)
}

// wantsJSON reads a command line that could not be parsed.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch {
		case arg == "--":
			return false
		case arg == "-ojson", arg == "-o=json", arg == "--output=json":
			return true
		case (arg == "-o" || arg == "--output") && i+1 < len(args) && args[i+1] == "json":
			return true
		}
	}
	return false
}
