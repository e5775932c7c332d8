package httpapi_test

import (
	"testing"

	"ringfence.dev/libs/routetest"
	"ringfence.dev/libs/trust"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/httpapi"
)

func TestRoutes_AreTheDocumentsOperations(t *testing.T) {
	t.Parallel()
	operations, err := openapi.Operations("Webhooks")
	if err != nil {
		t.Fatal(err)
	}
	router := httpapi.New(nil, nil, nil, nil).Routes(&trust.Keys{}, nil)
	routetest.Customers(t, router, operations)
}
