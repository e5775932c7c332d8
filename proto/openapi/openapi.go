// Package openapi has the public API: openapi.yaml is written by hand, and the types of requests
// and responses and the Go client are generated from it (make proto). The gateway serves
// Description.
package openapi

import _ "embed" // of the document

// Description is the OpenAPI 3.1 document as JSON.
//
//go:embed openapi.json
var Description []byte
