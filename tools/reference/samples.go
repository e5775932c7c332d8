package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// sampleRequest is the request that the code samples of an operation send. body is indented JSON,
// or empty.
type sampleRequest struct {
	method, path, body string
}

// addSamples adds a code sample in each language to every operation that needs an API key. The
// samples read the address and the key from the environment.
func addSamples(document *yaml.Node) {
	paths := member(document, "paths")
	if paths == nil {
		return
	}
	for i := 0; i < len(paths.Content); i += 2 {
		path, item := paths.Content[i].Value, paths.Content[i+1]
		if !strings.HasPrefix(path, "/v1/") {
			continue
		}
		for j := 0; j < len(item.Content); j += 2 {
			method, operation := item.Content[j].Value, item.Content[j+1]
			if method == "parameters" {
				continue
			}
			request := sampleRequest{
				method: strings.ToUpper(method),
				path:   samplePath(document, path, member(item, "parameters"), member(operation, "parameters")),
			}
			media := member(member(member(operation, "requestBody"), "content"), "application/json")
			if example := member(media, "example"); example != nil {
				body, err := encode(example)
				if err == nil {
					request.body = strings.TrimSpace(string(body))
				}
			}
			setMember(operation, "x-codeSamples", request.samples())
		}
	}
}

// samplePath replaces the parameters of a path by their examples.
func samplePath(document *yaml.Node, path string, lists ...*yaml.Node) string {
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
			if name != nil && example != nil && member(parameter, "in").Value == "path" {
				path = strings.ReplaceAll(path, "{"+name.Value+"}", strings.ReplaceAll(example.Value, "+", "%2B"))
			}
		}
	}
	return path
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

func (r sampleRequest) curl() string {
	text := fmt.Sprintf("curl -X %s \"$RINGFENCE_URL%s\" \\\n  -H \"Authorization: Bearer $RINGFENCE_KEY\"",
		r.method, r.path)
	if r.body != "" {
		text += " \\\n  -H 'Content-Type: application/json' \\\n  -d '" + strings.ReplaceAll(r.body, "'", `'\''`) + "'"
	}
	return text + "\n"
}

func (r sampleRequest) typeScript() string {
	var headers, body string
	if r.body != "" {
		headers = `, "Content-Type": "application/json"`
		body = "\n  body: JSON.stringify(" + strings.ReplaceAll(r.body, "\n", "\n  ") + "),"
	}
	return fmt.Sprintf("const response = await fetch(`${process.env.RINGFENCE_URL}%s`, {\n  method: %q,\n"+
		"  headers: { Authorization: `Bearer ${process.env.RINGFENCE_KEY}`%s },%s\n});\n"+
		"console.log(response.status, await response.json());\n", r.path, r.method, headers, body)
}

func (r sampleRequest) python() string {
	var headers, body string
	if r.body != "" {
		headers = `, "Content-Type": "application/json"`
		body = "\n    data=json.dumps(" + strings.ReplaceAll(pythonLiteral(r.body), "\n", "\n    ") + ").encode(),"
	}
	return fmt.Sprintf("import json, os, urllib.request\n\nrequest = urllib.request.Request(\n"+
		"    os.environ[\"RINGFENCE_URL\"] + %q,\n    method=%q,\n"+
		"    headers={\"Authorization\": \"Bearer \" + os.environ[\"RINGFENCE_KEY\"]%s},%s\n)\n"+
		"with urllib.request.urlopen(request) as response:\n    print(response.status, json.load(response))\n",
		r.path, r.method, headers, body)
}

func (r sampleRequest) golang() string {
	reader, imports := "nil", ""
	if r.body != "" {
		reader, imports = "strings.NewReader(`"+r.body+"`)", "\t\"strings\"\n"
	}
	var text strings.Builder
	text.WriteString("package main\n\nimport (\n\t\"fmt\"\n\t\"io\"\n\t\"log\"\n\t\"net/http\"\n\t\"os\"\n" + imports +
		")\n\nfunc main() {\n")
	fmt.Fprintf(&text, "\trequest, err := http.NewRequest(%q, os.Getenv(\"RINGFENCE_URL\")+%q, %s)\n",
		r.method, r.path, reader)
	text.WriteString("\tif err != nil {\n\t\tlog.Fatal(err)\n\t}\n" +
		"\trequest.Header.Set(\"Authorization\", \"Bearer \"+os.Getenv(\"RINGFENCE_KEY\"))\n")
	if r.body != "" {
		text.WriteString("\trequest.Header.Set(\"Content-Type\", \"application/json\")\n")
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
