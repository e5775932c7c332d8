package httpapi_test

import (
	"testing"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/httpapi"
)

func TestRoutes_MatchTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	operations, err := openapi.Operations("Webhooks")
	if err != nil {
		t.Fatal(err)
	}
	router := httpapi.New(nil, nil, nil, nil, nil).Routes(&serviceauth.Keys{}, nil)
	testkit.Customers(t, router, operations)
}
