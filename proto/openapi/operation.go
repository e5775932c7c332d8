package openapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Operation is a method of a path in the document.
type Operation struct {
	Method string // GET
	Path   string // /v1/calls/{id}
	ID     string // readCall
	Tag    string // Calls
}

// String returns, for example, "GET /v1/calls/{id}".
func (o Operation) String() string { return o.Method + " " + o.Path }

// Operations lists the operations of Description by path and method. If tags are given, it lists
// only the operations with one of these tags.
func Operations(tags ...string) ([]Operation, error) { return OperationsOf(Description, tags...) }

// OperationsOf does what Operations does, for any of the OpenAPI documents of this package.
func OperationsOf(document []byte, tags ...string) ([]Operation, error) {
	var described struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(document, &described); err != nil {
		return nil, fmt.Errorf("read the description: %w", err)
	}
	var found []Operation
	for path, members := range described.Paths {
		for method, raw := range members {
			if !slices.Contains([]string{"get", "post", "put", "patch", "delete"}, method) {
				continue // this member contains the parameters of all methods of the path
			}
			var described struct {
				OperationID string
				Tags        []string
			}
			if err := json.Unmarshal(raw, &described); err != nil {
				return nil, fmt.Errorf("read %s %s: %w", method, path, err)
			}
			if len(described.Tags) != 1 {
				return nil, fmt.Errorf("%s %s has the tags %v, want one", method, path, described.Tags)
			}
			if len(tags) == 0 || slices.Contains(tags, described.Tags[0]) {
				found = append(found, Operation{Method: strings.ToUpper(method), Path: path, ID: described.OperationID, Tag: described.Tags[0]})
			}
		}
	}
	slices.SortFunc(found, func(a, b Operation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	return found, nil
}
