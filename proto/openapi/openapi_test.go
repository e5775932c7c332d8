package openapi_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
)

func TestNullable_DistinguishesAnAbsentFieldFromNull(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		body openapi.UpdateContact
		want string
	}{
		{"absent", openapi.UpdateContact{}, `{}`},
		{"null", openapi.UpdateContact{Name: openapi.Null[string]()}, `{"name":null}`},
		{"empty", openapi.UpdateContact{Name: openapi.Value("")}, `{"name":""}`},
		{"a value", openapi.UpdateContact{Name: openapi.Value("Ada")}, `{"name":"Ada"}`},
	} {
		sent, err := json.Marshal(row.body)
		if err != nil {
			t.Errorf("json.Marshal: %v", err)
		} else if string(sent) != row.want {
			t.Errorf("sent = %q, want %q; row.name = %s", string(sent), row.want, row.name)
		}
		var read openapi.UpdateContact
		if err := json.Unmarshal(sent, &read); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if read.Name.IsZero() != row.body.Name.IsZero() {
			t.Errorf("read.Name.IsZero() = %v, want %v; row.name = %s", read.Name.IsZero(), row.body.Name.IsZero(), row.name)
		} else if (read.Name.Pointer() == nil) != (row.body.Name.Pointer() == nil) {
			t.Errorf("read.Name.Pointer() is absent = %v, want %v; row.name = %s",
				read.Name.Pointer() == nil, row.body.Name.Pointer() == nil, row.name)
		}
	}
	var refused openapi.UpdateContact
	if err := json.Unmarshal([]byte(`{"name":7}`), &refused); err == nil {
		t.Error("a number was read as a name")
	}
}

func TestOperations_ReturnsTheOperationsWithTheGivenTag(t *testing.T) {
	t.Parallel()
	all, err := openapi.Operations()
	if err != nil {
		t.Fatalf("Operations: %v", err)
	}
	if len(all) < 20 {
		t.Fatalf("Operations: length of all = %d, want at least 20", len(all))
	}
	wallet, err := openapi.Operations("Wallet")
	if want := (openapi.Operation{Method: "GET", Path: "/v1/wallet", ID: "readWallet", Tag: "Wallet"}); err != nil {
		t.Errorf("Operations: %v", err)
	} else if len(wallet) != 1 {
		t.Errorf("length of wallet = %d, want 1", len(wallet))
	} else if wallet[0] != want {
		t.Errorf("wallet[0] = %v, want %v", wallet[0], want)
	}
}

// The ids in the examples must contain the time of created_at, like the UUIDv7 ids of real objects.
func TestExamples_CreatedAtIsTheTimeInTheID(t *testing.T) {
	t.Parallel()
	var document any
	if err := json.Unmarshal(openapi.Description, &document); err != nil {
		t.Fatal(err)
	}
	seen := 0
	var walk func(any)
	walk = func(node any) {
		switch found := node.(type) {
		case []any:
			for _, item := range found {
				walk(item)
			}
		case map[string]any:
			for _, member := range found {
				walk(member)
			}
			text, _ := found["id"].(string)
			created, _ := found["created_at"].(string)
			id, err := uuid.Parse(text)
			if err != nil || id.Version() != 7 || created == "" {
				return
			}
			seen++
			if inside := time.Unix(id.Time().UnixTime()).UTC().Format("2006-01-02T15:04:05.000Z"); inside != created {
				t.Errorf("%s contains the time %s, and created_at is %s", id, inside, created)
			}
		}
	}
	walk(document)
	if seen < 5 {
		t.Errorf("%d examples were seen", seen)
	}
}

// A generated client has a type with the name of each schema. The name must not hide a built-in
// type of the client's language.
func TestSchemas_AreNotNamedLikeBuiltInTypes(t *testing.T) {
	t.Parallel()
	builtIn := []string{
		"Array", "Blob", "Body", "Boolean", "Date", "Dict", "Document", "Element", "Error", "Event", "Exception", "File",
		"Function", "Headers", "List", "Map", "Node", "Number", "Object", "Promise", "Range", "Record", "Request",
		"Response", "Set", "String", "Symbol", "Text", "Type",
	}
	for file, description := range map[string][]byte{
		"openapi.json": openapi.Description, "operator.json": openapi.OperatorDescription,
		"console.json": openapi.ConsoleDescription,
	} {
		var document struct {
			Components struct{ Schemas map[string]any }
		}
		if err := json.Unmarshal(description, &document); err != nil {
			t.Fatal(err)
		}
		for _, name := range builtIn {
			if _, found := document.Components.Schemas[name]; found {
				t.Errorf("the schema %s of %s has the name of a built-in type", name, file)
			}
		}
	}
}

// API clients read the possible values from x-extensible-enum. People read the values in the
// description.
func TestExtensibleEnums_DescriptionAndEnumListTheSameValues(t *testing.T) {
	t.Parallel()
	type property struct {
		Description string
		Values      []string `json:"x-extensible-enum"`
	}
	var document struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]property }
		}
	}
	if err := json.Unmarshal(openapi.Description, &document); err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`[a-z_]+`)
	for _, row := range []struct{ schema, property string }{
		{"Call", "hangup_cause"}, {"Call", "outcome"}, {"Call", "disposition"}, {"CallRequest", "error_code"},
	} {
		found := document.Components.Schemas[row.schema].Properties[row.property]
		if len(found.Values) < 10 {
			t.Errorf("%s.%s has %d values, want at least 10", row.schema, row.property, len(found.Values))
		}
		words := word.FindAllString(found.Description, -1)
		for _, value := range found.Values {
			if !slices.Contains(words, value) {
				t.Errorf("%s.%s: the description does not contain %s", row.schema, row.property, value)
			}
		}
		for _, text := range words {
			// these words of the description are not enum values
			named := text == "error_code" || text == "dial_state_unknown"
			if strings.Contains(text, "_") && !named && !slices.Contains(found.Values, text) {
				t.Errorf("%s.%s: x-extensible-enum does not contain %s", row.schema, row.property, text)
			}
		}
	}
}

// Each event type must have the same schema in the union of events as in its webhook.
func TestWebhookEvent_HasTheSchemasOfAllWebhooks(t *testing.T) {
	t.Parallel()
	type ref struct {
		Ref string `json:"$ref"`
	}
	var document struct {
		Webhooks map[string]struct {
			Post struct {
				RequestBody struct {
					Content map[string]struct{ Schema ref }
				}
			}
		}
		Components struct {
			Schemas struct {
				EventType    struct{ Enum []string }
				WebhookEvent struct {
					OneOf         []ref
					Discriminator struct {
						PropertyName string
						Mapping      map[string]string
					}
				}
			}
		}
	}
	if err := json.Unmarshal(openapi.Description, &document); err != nil {
		t.Fatal(err)
	}
	union, types := document.Components.Schemas.WebhookEvent, document.Components.Schemas.EventType.Enum
	if union.Discriminator.PropertyName != "type" {
		t.Errorf("discriminator = %q, want type", union.Discriminator.PropertyName)
	}
	if len(types) < 14 {
		t.Errorf("%d event types, want at least 14", len(types))
	}
	if got := len(union.Discriminator.Mapping); got != len(types) {
		t.Errorf("the union maps %d types, want %d", got, len(types))
	}
	for _, name := range types {
		want := document.Webhooks[name].Post.RequestBody.Content["application/json"].Schema
		if got := union.Discriminator.Mapping[name]; got != want.Ref {
			t.Errorf("%s is mapped to %q, want %q", name, got, want.Ref)
		}
		if !slices.Contains(union.OneOf, want) {
			t.Errorf("%s: the union does not contain %q", name, want.Ref)
		}
	}
}

func TestWebhookEvent_EventTypeSelectsTheStruct(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		body string
		want any
	}{
		{body: `{"type":"call.busy","data":{}}`, want: openapi.CallEvent{}},
		{body: `{"type":"call_request.failed","data":{}}`, want: openapi.CallRequestEvent{}},
		{body: `{"type":"webhook_subscription.failed","data":{}}`, want: openapi.SubscriptionEvent{}},
		{body: `{"type":"webhook.test","data":{}}`, want: openapi.TestEvent{}},
	} {
		var event openapi.WebhookEvent
		if err := json.Unmarshal([]byte(row.body), &event); err != nil {
			t.Fatal(err)
		}
		got, err := event.ValueByDiscriminator()
		if err != nil {
			t.Errorf("%s: %v", row.body, err)
		}
		if reflect.TypeOf(got) != reflect.TypeOf(row.want) {
			t.Errorf("%s is a %T, want a %T", row.body, got, row.want)
		}
	}
}

func TestPostCalls_LinksReferToOperations(t *testing.T) {
	t.Parallel()
	var document struct {
		Paths struct {
			Calls struct {
				Post struct {
					Responses map[string]struct {
						Links map[string]struct{ OperationID string }
					}
				}
			} `json:"/v1/calls"`
		}
	}
	if err := json.Unmarshal(openapi.Description, &document); err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{"200", "202"} {
		links := document.Paths.Calls.Post.Responses[status].Links
		if got := links["ReadCallRequest"].OperationID; got != "readCallRequest" {
			t.Errorf("%s: ReadCallRequest = %q, want readCallRequest", status, got)
		}
		if got := links["CancelCallRequest"].OperationID; got != "cancelCallRequest" {
			t.Errorf("%s: CancelCallRequest = %q, want cancelCallRequest", status, got)
		}
	}
}
