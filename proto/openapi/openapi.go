// Package openapi describes the public API. openapi.yaml is written by hand, and `make proto`
// generates from it the types of requests and responses and the Go client. operator.yaml describes
// the operator API, and console.yaml describes the routes that only the console listener serves.
// The gateway serves all documents.
package openapi

import _ "embed" // for the go:embed directives below

// Description is the OpenAPI 3.1 document as JSON.
//
//go:embed openapi.json
var Description []byte

// OperatorDescription is the OpenAPI 3.1 document of the operator API as JSON. It contains the
// schemas of openapi.yaml to which operator.yaml refers.
//
//go:embed operator.json
var OperatorDescription []byte

// ConsoleDescription is the OpenAPI 3.1 document of the routes that only the console listener
// serves, as JSON.
//
//go:embed console.json
var ConsoleDescription []byte
