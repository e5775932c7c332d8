package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// sampleRequest is the request that the code samples of an operation send. body is empty if the
// request has none. Otherwise it is indented JSON, or text of another media type.
type sampleRequest struct {
	method, path, body, media string
	api                       sampleAPI
	// headers are the names and values of required headers.
	headers [][2]string
	// open is true if the request needs no token.
	open bool
	// json is true if the response is JSON.
	json bool
}

// sampleAPI has the environment variables from which the samples of an API read the address and the
// token. The paths of the API begin with prefix.
type sampleAPI struct{ prefix, url, token string }

var sampleAPIs = []sampleAPI{
	{prefix: "/v1/", url: "RINGFENCE_URL", token: "RINGFENCE_KEY"},
	{prefix: "/admin/v1/", url: "RINGFENCE_ADMIN_URL", token: "RINGFENCE_ADMIN_TOKEN"},
	{prefix: "/console/v1/", url: "RINGFENCE_CONSOLE_URL", token: "RINGFENCE_SESSION"},
}

const jsonMedia = "application/json"

// addSamples adds a code sample in each language to every operation of the APIs.
func addSamples(document *yaml.Node) {
	paths := member(document, "paths")
	if paths == nil {
		return
	}
	for i := 0; i < len(paths.Content); i += 2 {
		path, item := paths.Content[i].Value, paths.Content[i+1]
		for _, api := range sampleAPIs {
			if strings.HasPrefix(path, api.prefix) {
				addSamplesOf(document, path, item, api)
			}
		}
	}
}

func addSamplesOf(document *yaml.Node, path string, item *yaml.Node, api sampleAPI) {
	for i := 0; i < len(item.Content); i += 2 {
		method, operation := item.Content[i].Value, item.Content[i+1]
		if method == "parameters" {
			continue
		}
		request := sampleRequest{
			method: strings.ToUpper(method), path: path, api: api, json: answersJSON(operation),
			open: member(operation, "security") != nil,
		}
		request.addParameters(document, member(item, "parameters"), member(operation, "parameters"))
		request.addBody(member(member(operation, "requestBody"), "content"))
		setMember(operation, "x-codeSamples", request.samples())
	}
}

// answersJSON reports whether a successful response of the operation is JSON.
func answersJSON(operation *yaml.Node) bool {
	responses := member(operation, "responses")
	if responses == nil {
		return false
	}
	for i := 0; i < len(responses.Content); i += 2 {
		if status := responses.Content[i].Value; strings.HasPrefix(status, "2") {
			return member(member(responses.Content[i+1], "content"), jsonMedia) != nil
		}
	}
	return false
}

// addParameters replaces the parameters of the path by their examples, and adds the required
// headers.
func (r *sampleRequest) addParameters(document *yaml.Node, lists ...*yaml.Node) {
	for _, list := range lists {
		if list == nil {
			continue
		}
		for _, parameter := range list.Content {
			if ref := member(parameter, "$ref"); ref != nil {
				parameter = document
				for name := range strings.SplitSeq(strings.TrimPrefix(ref.Value, "#/"), "/") {
					parameter = member(parameter, name)
				}
			}
			name, example := member(parameter, "name"), member(parameter, "example")
			if name == nil || example == nil {
				continue
			}
			switch member(parameter, "in").Value {
			case "path":
				value := strings.ReplaceAll(example.Value, "+", "%2B")
				r.path = strings.ReplaceAll(r.path, "{"+name.Value+"}", value)
			case "header":
				if required := member(parameter, "required"); required != nil && required.Value == "true" {
					r.headers = append(r.headers, [2]string{name.Value, example.Value})
				}
			}
		}
	}
}

// addBody adds the example of the first media type of a request body.
func (r *sampleRequest) addBody(content *yaml.Node) {
	if content == nil || len(content.Content) == 0 {
		return
	}
	example := member(content.Content[1], "example")
	if example == nil {
		return
	}
	r.media, r.body = content.Content[0].Value, example.Value
	if r.media == jsonMedia {
		if body, err := encode(example); err == nil {
			r.body = strings.TrimSpace(string(body))
		}
	}
}

func (r sampleRequest) samples() *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, sample := range []struct{ language, label, source string }{
		{"shell", "curl", r.curl()}, {"typescript", "TypeScript", r.typeScript()}, {"python", "Python", r.python()},
		{"go", "Go", r.golang()},
	} {
		one := &yaml.Node{Kind: yaml.MappingNode}
		for _, pair := range [][2]string{{"lang", sample.language}, {"label", sample.label}, {"source", sample.source}} {
			setMember(one, pair[0], &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: pair[1]})
		}
		list.Content = append(list.Content, one)
	}
	return list
}

// allHeaders returns the required headers and the media type of the body.
func (r sampleRequest) allHeaders() [][2]string {
	headers := slices.Clone(r.headers)
	if r.body != "" {
		headers = append(headers, [2]string{"Content-Type", r.media})
	}
	return headers
}

func (r sampleRequest) curl() string {
	var text strings.Builder
	fmt.Fprintf(&text, "curl -X %s \"$%s%s\"", r.method, r.api.url, r.path)
	if !r.open {
		fmt.Fprintf(&text, " \\\n  -H \"Authorization: Bearer $%s\"", r.api.token)
	}
	for _, header := range r.allHeaders() {
		fmt.Fprintf(&text, " \\\n  -H '%s: %s'", header[0], header[1])
	}
	if r.body != "" {
		option := "-d"
		if r.media != jsonMedia {
			option = "--data-binary"
		}
		fmt.Fprintf(&text, " \\\n  %s '%s'", option, strings.ReplaceAll(r.body, "'", `'\''`))
	}
	return text.String() + "\n"
}

func (r sampleRequest) typeScript() string {
	var headers []string
	if !r.open {
		headers = append(headers, "Authorization: `Bearer ${process.env."+r.api.token+"}`")
	}
	for _, header := range r.allHeaders() {
		headers = append(headers, fmt.Sprintf("%q: %q", header[0], header[1]))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "const response = await fetch(`${process.env.%s}%s`, {\n", r.api.url, r.path)
	fmt.Fprintf(&text, "  method: %q,\n", r.method)
	if len(headers) > 0 {
		fmt.Fprintf(&text, "  headers: { %s },\n", strings.Join(headers, ", "))
	}
	switch {
	case r.body == "":
	case r.media == jsonMedia:
		text.WriteString("  body: JSON.stringify(" + strings.ReplaceAll(r.body, "\n", "\n  ") + "),\n")
	default:
		fmt.Fprintf(&text, "  body: %q,\n", r.body)
	}
	read := "text"
	if r.json {
		read = "json"
	}
	fmt.Fprintf(&text, "});\nconsole.log(response.status, await response.%s());\n", read)
	return text.String()
}

func (r sampleRequest) python() string {
	var headers []string
	if !r.open {
		headers = append(headers, fmt.Sprintf(`"Authorization": "Bearer " + os.environ["%s"]`, r.api.token))
	}
	for _, header := range r.allHeaders() {
		headers = append(headers, fmt.Sprintf("%q: %q", header[0], header[1]))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "import json, os, urllib.request\n\nrequest = urllib.request.Request(\n"+
		"    os.environ[%q] + %q,\n    method=%q,\n", r.api.url, r.path, r.method)
	if len(headers) > 0 {
		fmt.Fprintf(&text, "    headers={%s},\n", strings.Join(headers, ", "))
	}
	switch {
	case r.body == "":
	case r.media == jsonMedia:
		body := strings.ReplaceAll(pythonLiteral(r.body), "\n", "\n    ")
		text.WriteString("    data=json.dumps(" + body + ").encode(),\n")
	default:
		fmt.Fprintf(&text, "    data=%q.encode(),\n", r.body)
	}
	read := "response.read().decode()"
	if r.json {
		read = "json.load(response)"
	}
	fmt.Fprintf(&text, ")\nwith urllib.request.urlopen(request) as response:\n    print(response.status, %s)\n", read)
	return text.String()
}

func (r sampleRequest) golang() string {
	reader, imports := "nil", ""
	if r.body != "" {
		reader, imports = "strings.NewReader(`"+r.body+"`)", "\t\"strings\"\n"
	}
	var text strings.Builder
	text.WriteString("package main\n\nimport (\n\t\"fmt\"\n\t\"io\"\n\t\"log\"\n\t\"net/http\"\n\t\"os\"\n" + imports +
		")\n\nfunc main() {\n")
	const newRequest = "\trequest, err := http.NewRequest(%q, os.Getenv(%q)+%q, %s)\n"
	fmt.Fprintf(&text, newRequest, r.method, r.api.url, r.path, reader)
	text.WriteString("\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n")
	if !r.open {
		fmt.Fprintf(&text, "\trequest.Header.Set(\"Authorization\", \"Bearer \"+os.Getenv(%q))\n", r.api.token)
	}
	for _, header := range r.allHeaders() {
		fmt.Fprintf(&text, "\trequest.Header.Set(%q, %q)\n", header[0], header[1])
	}
	text.WriteString("\tresponse, err := http.DefaultClient.Do(request)\n" +
		"\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n" +
		"\tdefer response.Body.Close()\n\tbody, err := io.ReadAll(response.Body)\n" +
		"\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n" +
		"\tfmt.Println(response.StatusCode, string(body))\n}\n")
	return text.String()
}

// pythonLiteral returns JSON as a Python literal: only the words true, false and null differ.
func pythonLiteral(body string) string {
	words := map[string]string{"true": "True", "false": "False", "null": "None"}
	var text strings.Builder
	decoder := json.NewDecoder(strings.NewReader(body))
	begin := int64(0)
	for {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		end := decoder.InputOffset()
		piece := body[begin:end]
		if word := string(bytes.TrimLeft([]byte(piece), " \n:,")); words[word] != "" && !isText(token) {
			piece = strings.TrimSuffix(piece, word) + words[word]
		}
		text.WriteString(piece)
		begin = end
	}
	return text.String() + body[begin:]
}

func isText(token json.Token) bool { _, ok := token.(string); return ok }
