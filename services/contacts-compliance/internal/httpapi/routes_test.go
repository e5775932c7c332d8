package httpapi_test

import (
	"testing"

	"ringfence.dev/libs/routetest"
	"ringfence.dev/libs/trust"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/contacts-compliance/internal/httpapi"
)

func TestRoutes_AreTheDocumentsOperations(t *testing.T) {
	t.Parallel()
	operations, err := openapi.Operations("Contacts", "Opt-outs")
	if err != nil {
		t.Fatal(err)
	}
	router, err := httpapi.New(nil, nil, nil, nil, &trust.Keys{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	routetest.Customers(t, router, operations)
}
