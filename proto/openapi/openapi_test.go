package openapi_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
)

func TestNullable_AbsentNullAndValueDiffer(t *testing.T) {
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

func TestOperations_AreThoseOfTheirTags(t *testing.T) {
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

// created_at of an object is the time in its id of version 7, also in the examples.
func TestExamples_AreCreatedWhenTheirIDsSay(t *testing.T) {
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
	var document struct {
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(openapi.Description, &document); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"Array", "Blob", "Body", "Boolean", "Date", "Dict", "Document", "Element", "Error", "Event", "Exception", "File",
		"Function", "Headers", "List", "Map", "Node", "Number", "Object", "Promise", "Range", "Record", "Request",
		"Response", "Set", "String", "Symbol", "Text", "Type",
	} {
		if _, found := document.Components.Schemas[name]; found {
			t.Errorf("the schema %s has the name of a built-in type", name)
		}
	}
}

func TestLinks_OfPostCallsNameOperations(t *testing.T) {
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
