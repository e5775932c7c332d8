package pages

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"ringfence.dev/services/console/internal/gateway"
)

// trunkField is a setting of a trunk in the form. Name is the name in the API.
type trunkField struct {
	Name string
	// Kind is text, number, lines (a list with one item per line), block (a text of several lines)
	// or choice.
	Kind     string
	Choices  []string
	Required bool
	// Rare is true if the field is in the part of the form that is collapsed at first.
	Rare bool
}

// trunkFields returns the fields of the form, in the order of the page.
func trunkFields() []trunkField {
	yesNo := []string{"true", "false"}
	return []trunkField{
		{Name: "name", Kind: "text", Required: true},
		{Name: "host", Kind: "text", Required: true},
		{Name: "port", Kind: "number"},
		{Name: "transport", Kind: "choice", Choices: []string{"udp", "tcp", "tls"}},
		{Name: "username", Kind: "text"},
		{Name: "register", Kind: "choice", Choices: yesNo},
		{Name: "status", Kind: "choice", Choices: []string{"active", "disabled"}},
		{Name: "channels", Kind: "number"},
		{Name: "calls_per_second", Kind: "number"},
		{Name: "caller_ids", Kind: "lines"},
		{Name: "inbound_sources", Kind: "lines"},
		{Name: "outbound_proxy", Rare: true, Kind: "text"},
		{Name: "priority", Rare: true, Kind: "number"},
		{Name: "caller_id_header", Rare: true, Kind: "choice", Choices: []string{"from", "p_asserted_identity"}},
		{Name: "number_format", Rare: true, Kind: "choice", Choices: []string{"plus", "digits", "prefix"}},
		{Name: "number_prefix", Rare: true, Kind: "text"},
		{Name: "codecs", Rare: true, Kind: "lines"},
		{Name: "srtp", Rare: true, Kind: "choice", Choices: []string{"off", "optional", "required"}},
		{Name: "session_seconds", Rare: true, Kind: "number"},
		{Name: "media_timeout_seconds", Rare: true, Kind: "number"},
		{Name: "trace", Rare: true, Kind: "choice", Choices: yesNo},
		{Name: "ca_certificates", Rare: true, Kind: "block"},
	}
}

type trunkFormData struct {
	Fields []trunkField
	Values map[string]string
	// New is true if the trunk does not exist yet.
	New bool
	ID  string
	// Saved is the stored name. HasPassword is whether a password is stored.
	Saved       string
	HasPassword bool
	// Version is the ETag of the trunk that the person sees.
	Version string
	Fault   *fault
}

// Value returns the value of a field.
func (d trunkFormData) Value(name string) string { return d.Values[name] }

// Part returns the fields of one part of the form.
func (d trunkFormData) Part(rare bool) (fields []trunkField) {
	for _, field := range d.Fields {
		if field.Rare == rare {
			fields = append(fields, field)
		}
	}
	return fields
}

// RareFault reports whether the refusal is about a field in the part that is collapsed at first.
func (d trunkFormData) RareFault() bool {
	return slices.ContainsFunc(d.Part(true), func(f trunkField) bool { return d.Fault.At(f.Name) != "" })
}

// Elsewhere returns the message of a refusal that is about no field of the form.
func (d trunkFormData) Elsewhere() string {
	names := []string{"password"}
	for _, field := range d.Fields {
		names = append(names, field.Name)
	}
	return d.Fault.Elsewhere(names...)
}

func trunkFormView(data trunkFormData) view {
	data.Fields = trunkFields()
	result := view{template: "trunk_form", title: "trunks.new", nav: "trunks", heading: data.Saved, data: data}
	if data.Fault != nil {
		result.status = data.Fault.Status
	}
	return result
}

func showNewTrunk(v *visit) (view, error) {
	if !v.can("operate") {
		return view{}, errForbidden
	}
	return trunkFormView(trunkFormData{New: true}), nil
}

func createTrunk(v *visit) (view, error) {
	data := trunkFormData{New: true, Values: v.trunkValues()}
	body, refused := v.trunkChanges(nil)
	if data.Fault = refused; refused != nil {
		return trunkFormView(data), nil
	}
	made, err := gateway.Post[trunk](v.r.Context(), v.Session, "/admin/v1/trunks", body)
	if data.Fault = faultOf(err); data.Fault != nil {
		return trunkFormView(data), nil
	}
	return view{redirect: "/operator/trunks/" + made.ID.String(), done: "trunk_created"}, err
}

func showTrunkSettings(v *visit) (view, error) {
	_, data, err := v.trunkSettings()
	return trunkFormView(data), err
}

// trunkSettings reads the trunk of the page and returns its settings as the values of the form.
func (v *visit) trunkSettings() (path string, data trunkFormData, err error) {
	if path, err = v.trunkPath(); err != nil {
		return path, data, err
	}
	found, version, err := gateway.GetTagged[map[string]json.RawMessage](v.r.Context(), v.Session, path)
	if err != nil {
		return path, data, err
	}
	data = trunkFormData{ID: v.r.PathValue("trunk"), Values: map[string]string{}, Version: version}
	for _, field := range trunkFields() {
		data.Values[field.Name] = settingText(found[field.Name])
	}
	data.Saved = data.Values["name"]
	data.HasPassword = settingText(found["has_password"]) == "true"
	return path, data, nil
}

// settingText returns a setting as the text of its field. A list has one item per line.
func settingText(raw json.RawMessage) string {
	var text string
	var list []string
	switch {
	case !isObject(raw):
		return ""
	case json.Unmarshal(raw, &text) == nil:
		return text
	case json.Unmarshal(raw, &list) == nil:
		return strings.Join(list, "\n")
	}
	return string(raw) // a number or true or false
}

// trunkValues returns the submitted values.
func (v *visit) trunkValues() map[string]string {
	values := map[string]string{}
	for _, field := range trunkFields() {
		values[field.Name] = strings.ReplaceAll(v.form(field.Name), "\r\n", "\n")
	}
	return values
}

// trunkChanges returns the settings whose submitted value differs from the value in before, as the
// body of a request. An empty number field changes nothing.
func (v *visit) trunkChanges(before map[string]string) (map[string]any, *fault) {
	body, values := map[string]any{}, v.trunkValues()
	for _, field := range trunkFields() {
		text := values[field.Name]
		if text == strings.TrimSpace(before[field.Name]) {
			continue
		}
		switch {
		case field.Kind == "lines":
			body[field.Name] = strings.Fields(strings.ReplaceAll(text, ",", " "))
		case field.Kind == "number" && text == "":
		case field.Kind == "number":
			count, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return nil, v.refusedField(field.Name, "form.number")
			}
			body[field.Name] = count
		case text == "true", text == "false":
			body[field.Name] = text == "true"
		case text == "":
			body[field.Name] = nil
		default:
			body[field.Name] = text
		}
	}
	if password := v.r.PostFormValue("password"); password != "" {
		body["password"] = password
	} else if v.form("remove_password") != "" {
		body["password"] = nil
	}
	return body, nil
}

// changeTrunk stores the settings that the person changed. If another person changed the trunk
// since the form was shown, nothing is stored.
func changeTrunk(v *visit) (view, error) {
	path, data, err := v.trunkSettings()
	if err != nil {
		return view{}, err
	}
	body, refused := v.trunkChanges(data.Values)
	if refused == nil {
		v.giveReason() // optional
		err = v.patchVersion(path, v.form("version"), body)
		refused = v.faultOf(err)
	}
	if refused != nil {
		data.Values, data.Fault = v.trunkValues(), refused
		if refused.Status != http.StatusPreconditionFailed {
			data.Version = v.form("version") // the version that the person saw
		}
		return trunkFormView(data), nil
	}
	return view{redirect: "/operator/trunks/" + data.ID, done: "trunk_changed"}, err
}

// removeTrunk removes a trunk. The person must type its name as a confirmation.
func removeTrunk(v *visit) (view, error) {
	path, data, err := v.trunkSettings()
	if err != nil {
		return view{}, err
	}
	if !v.confirmed(data.Saved) {
		return view{redirect: "/operator/trunks/" + data.ID, done: "not_confirmed"}, nil
	}
	return view{redirect: "/operator/trunks", done: "trunk_removed"}, v.remove(path)
}
