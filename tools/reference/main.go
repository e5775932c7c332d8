// Command reference generates documents from the source. It writes to standard output, except for
// reference docs.
//
//	reference configuration BIN
//		docs/reference/configuration.md: the variables that BIN/<service> --help lists
//	reference errors
//		docs/reference/errors.md: the codes of apierr.Catalogue
//	reference alerts FOLDER
//		docs/reference/alerts.md: the alerts of the rule files in FOLDER
//	reference openapi openapi.yaml
//		the API description as JSON, with code samples, which the gateway serves
//	reference openapi-types openapi.yaml
//		the same for oapi-codegen: fields keep their order, all errors have one type, responses
//		have no headers
//	reference docs FOLDER
//		the documentation as static files in FOLDER
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	if len(args) == 1 && args[0] == "errors" {
		return writeErrors(out)
	}
	if len(args) != 2 {
		return errors.New("want configuration BIN, errors, alerts FOLDER, openapi FILE, openapi-types FILE or docs FOLDER")
	}
	switch what, path := args[0], args[1]; what {
	case "docs":
		return writeDocs(out, path)
	case "configuration":
		return writeConfiguration(out, path)
	case "alerts":
		return writeAlerts(out, path)
	case "openapi":
		return writeOpenAPI(out, path, addSamples)
	case "openapi-types":
		return writeOpenAPI(out, path, forGenerator)
	default:
		return fmt.Errorf("%s: want configuration, errors, alerts, openapi, openapi-types or docs", what)
	}
}
