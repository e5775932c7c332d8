package testkit

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
)

// placeholder matches a placeholder in a route template. The names of placeholders are not
// compared.
var placeholder = regexp.MustCompile(`\{[^}]*\}`)

// Customers fails the test unless the chi router has exactly the given operations below /v1. The
// string of an operation is, for example, "GET /v1/calls/{id}".
func Customers[O fmt.Stringer](t *testing.T, router http.Handler, operations []O) {
	t.Helper()
	routes, ok := router.(chi.Routes)
	if !ok {
		t.Fatalf("%T is no chi router", router)
	}
	var answered []string
	err := chi.Walk(routes, func(method, template string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if strings.HasPrefix(template, "/v1/") {
			answered = append(answered, method+" "+placeholder.ReplaceAllString(template, "{}"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, operation := range operations {
		described = append(described, placeholder.ReplaceAllString(operation.String(), "{}"))
	}
	Same(t, answered, described)
}

// Same fails the test if the two lists differ or contain duplicates.
func Same(t *testing.T, answered, described []string) {
	t.Helper()
	if len(described) == 0 {
		t.Error("the API description contains no operation")
	}
	for _, each := range answered {
		if !slices.Contains(described, each) {
			t.Errorf("%s is answered and not described", each)
		}
	}
	for _, each := range described {
		if !slices.Contains(answered, each) {
			t.Errorf("%s is described and not answered", each)
		}
	}
	if len(answered) != len(described) {
		t.Errorf("%d operations are answered, %d described", len(answered), len(described))
	}
}
