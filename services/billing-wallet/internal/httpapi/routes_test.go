package httpapi_test

import (
	"testing"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/billing-wallet/internal/httpapi"
)

func TestRoutes_MatchTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	operations, err := openapi.Operations("Wallet")
	if err != nil {
		t.Fatal(err)
	}
	router, err := httpapi.New(nil, nil).Routes(nil, &serviceauth.Keys{})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Customers(t, router, operations)
}
