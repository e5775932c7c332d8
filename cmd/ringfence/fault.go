package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"ringfence.dev/cmd/ringfence/internal/operator"
)

// fault is the error of a command, with the fields of an /admin/v1 error. Status and RequestID are
// set only if /admin/v1 returned the error.
type fault struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Status    int    `json:"status,omitempty"`
	RequestID string `json:"request_id,omitempty"`
}

// unknownCode is the code of an error for which /admin/v1 returned no code.
const unknownCode = "failed"

func faultOf(err error) fault {
	f := fault{Code: unknownCode, Message: err.Error()}
	var refused *operator.Refusal
	if errors.As(err, &refused) {
		f.Code, f.Status, f.RequestID = cmp.Or(refused.Code, f.Code), refused.Status, refused.RequestID
	}
	return f
}

// String returns the error as text. It adds the request id if the service failed, because the log
// of the service has more details.
func (f fault) String() string {
	switch {
	case f.Status == 0, f.Code == unknownCode:
		return "ringfence: " + f.Message
	case f.Status >= http.StatusInternalServerError && f.RequestID != "":
		return fmt.Sprintf("ringfence: %s (%d %s, request %s)", f.Message, f.Status, f.Code, f.RequestID)
	}
	return fmt.Sprintf("ringfence: %s (%d %s)", f.Message, f.Status, f.Code)
}

func (f fault) print(to io.Writer, asJSON bool) { operator.Aside(to, asJSON, "error", f) }

var negative = regexp.MustCompile(`^unknown flag -[0-9.]`)

func usageMessage(why string) string {
	if negative.MatchString(why) {
		return "a number below zero is read as a flag: write -- before it, as in adjust -- -2.50 REFERENCE."
	}
	if strings.HasSuffix(why, "?") {
		return why
	}
	return why + "."
}

// wantsJSON reports whether a command line that could not be parsed contains --json.
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
