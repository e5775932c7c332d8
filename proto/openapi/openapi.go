// Package openapi owns the public API's shape: openapi.yaml is the contract, written by hand; the types of requests and
// answers and the Go client are generated from it (make proto), and Description is what the gateway serves. It decides
// nothing: which rule refuses what is the services' business.
package openapi

import _ "embed" // of the document

// Description is the interface description as JSON (OpenAPI 3.1).
//
//go:embed openapi.json
var Description []byte
