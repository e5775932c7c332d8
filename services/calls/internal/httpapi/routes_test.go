package httpapi_test

import (
	"slices"
	"strings"
	"testing"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/calls/internal/httpapi"
)

func TestRoutes_MatchTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	operations, err := openapi.Operations("Calls", "Call requests")
	if err != nil {
		t.Fatal(err)
	}
	// the gateway serves the timeline, not this service
	operations = slices.DeleteFunc(operations, func(o openapi.Operation) bool {
		return strings.HasSuffix(o.Path, "/timeline")
	})
	router := httpapi.New(nil, nil, nil, nil, nil, nil).Handler(nil, &serviceauth.Keys{})
	testkit.Customers(t, router, operations)
}
