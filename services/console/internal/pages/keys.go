package pages

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) keyRoutes() []route {
	return []route{
		{"GET /w/{workspace}/integrations/api-keys", showKeys},
		{"POST /w/{workspace}/integrations/api-keys", createKey},
		{"POST /w/{workspace}/integrations/api-keys/{key}/revoke", revokeKey},
	}
}

// apiKey is an API key as the operator API returns it. Only the response that creates the key
// contains the secret.
type apiKey struct {
	ID        uuid.UUID          `json:"id"`
	Name      string             `json:"name"`
	Access    string             `json:"access"`
	Prefix    string             `json:"prefix"`
	CreatedAt openapi.Timestamp  `json:"created_at"`
	RevokedAt *openapi.Timestamp `json:"revoked_at"`
}

type keysData struct {
	gateway.Page[apiKey]
	Last string // the id of the last key, if there are more
	// Name and Access are the values of the form. A refused form shows them again with the Error.
	Name, Access string
	Error        *gateway.Error
}

// readKeys reads a page of keys. data contains the values and the error of the form.
func readKeys(v *visit, data keysData) (view, error) {
	err := concurrently(read(v, &data.Page, v.admin("/api-keys"), v.listQuery()))
	if data.HasMore {
		data.Last = data.Data[len(data.Data)-1].ID.String()
	}
	return view{template: "keys", title: "keys.title", nav: "keys", data: data}, err
}

func showKeys(v *visit) (view, error) { return readKeys(v, keysData{Access: "write"}) }

// newKeyData contains a new key. The gateway returns the secret only once.
type newKeyData struct{ Name, Access, Key string }

func createKey(v *visit) (view, error) {
	form := keysData{Name: v.form("name"), Access: v.form("access")}
	made, err := gateway.Post[struct {
		Key string `json:"key"`
	}](v.r.Context(), v.Session, v.admin("/api-keys"), map[string]string{"name": form.Name, "access": form.Access})
	if form.Error = fieldError(err); form.Error != nil {
		result, err := readKeys(v, form)
		result.status = http.StatusUnprocessableEntity
		return result, err
	}
	return view{template: "key", title: "keys.created", nav: "keys",
		data: newKeyData{form.Name, form.Access, made.Key}}, err
}

// fieldError returns the error if the gateway refused a field of a form. Otherwise it returns nil.
func fieldError(err error) *gateway.Error {
	if refused := gateway.AsError(err); refused != nil && refused.Status == http.StatusUnprocessableEntity {
		return refused
	}
	return nil
}

// pathOf returns parentPath with the id from the page's address. wildcard is the name of the id in
// the route.
func (v *visit) pathOf(parentPath, wildcard string) (string, error) {
	id, err := uuid.Parse(v.r.PathValue(wildcard))
	if err != nil {
		return "", errNotFound
	}
	return parentPath + "/" + id.String(), nil
}

// revokeKey revokes a key. The person must type its prefix, because several keys can have the same
// name.
func revokeKey(v *visit) (view, error) {
	path, err := v.pathOf(v.admin("/api-keys"), "key")
	if err != nil {
		return view{}, err
	}
	found, err := gateway.Get[apiKey](v.r.Context(), v.Session, path, nil)
	if err != nil {
		return view{}, err
	}
	keys := v.path("integrations", "api-keys")
	if !v.confirmed(found.Prefix) {
		return view{redirect: keys, done: "not_confirmed"}, nil
	}
	_, err = gateway.Do[apiKey](v.r.Context(), v.Session, gateway.Request{Method: http.MethodDelete, Path: path})
	return view{redirect: keys, done: "key_revoked"}, err
}

// Recent reports whether the last sign-in is recent enough for actions that require a recent
// sign-in.
func (p *pageData) Recent() bool { return time.Now().Before(p.Me.Session.RecentUntil.Time) }
