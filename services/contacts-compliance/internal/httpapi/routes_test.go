package httpapi_test

import (
	"testing"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/contacts-compliance/internal/httpapi"
)

func TestRoutes_AreTheOperationsOfTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	operations, err := openapi.Operations("Contacts", "Opt-outs", "Decisions")
	if err != nil {
		t.Fatal(err)
	}
	router, err := httpapi.New(nil, nil, nil, nil, &serviceauth.Keys{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Customers(t, router, operations)
}
