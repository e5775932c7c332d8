// Package openapi has the public API: openapi.yaml is written by hand, and the types of requests
// and responses and the Go client are generated from it (make proto). operator.yaml describes the
// operator API, and console.yaml the routes for people. The gateway serves all documents.
package openapi

import _ "embed" // of the document

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
