package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// writeOpenAPI writes the YAML file as JSON. changeDocument can change the document before it is
// written.
func writeOpenAPI(out io.Writer, path string, changeDocument func(*yaml.Node)) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	document, err := parseDocument(source)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := bundle(document, filepath.Dir(path)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	changeDocument(document)
	text, err := encode(document)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// parseDocument parses a document and resolves anchors and merge keys. It returns an error for a
// key that occurs twice and for a key without a value. In a one-line mapping, unquoted text with a
// comma produces such a key.
func parseDocument(source []byte) (*yaml.Node, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(source, &file); err != nil {
		return nil, err
	}
	if len(file.Content) != 1 {
		return nil, fmt.Errorf("is empty")
	}
	return resolve(file.Content[0])
}

func resolve(node *yaml.Node) (*yaml.Node, error) {
	if node.Kind == yaml.AliasNode {
		return resolve(node.Alias)
	}
	plain := &yaml.Node{Kind: node.Kind, Tag: node.Tag, Value: node.Value, Style: node.Style}
	if node.Kind != yaml.MappingNode {
		for _, item := range node.Content {
			resolved, err := resolve(item)
			if err != nil {
				return nil, err
			}
			plain.Content = append(plain.Content, resolved)
		}
		return plain, nil
	}
	keys := map[string]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if keys[key.Value] {
			return nil, fmt.Errorf("line %d: %q occurs twice", key.Line, key.Value)
		}
		keys[key.Value] = true
		resolved, err := resolve(value)
		if err != nil {
			return nil, err
		}
		switch {
		case key.Tag == "!!merge":
			for j := 0; j < len(resolved.Content); j += 2 {
				setMember(plain, resolved.Content[j].Value, resolved.Content[j+1])
			}
		case value.Tag == "!!null" && value.Value == "":
			return nil, fmt.Errorf("line %d: %q has no value: quote a text with a comma", key.Line, key.Value)
		default:
			setMember(plain, key.Value, resolved)
		}
	}
	return plain, nil
}

// bundle replaces each reference to a component of another file in folder by a reference to a copy
// of the component, which it adds to the document.
func bundle(document *yaml.Node, folder string) error {
	files := map[string]*yaml.Node{}
	copied := map[string]bool{}
	var visit func(node *yaml.Node, file string) error
	visit = func(node *yaml.Node, file string) error {
		if ref := member(node, "$ref"); ref != nil {
			name, component, outside := strings.Cut(ref.Value, "#/components/")
			if name == "" {
				name = file
			}
			if name == "" || !outside {
				return nil
			}
			ref.Value = "#/components/" + component
			if copied[component] {
				return nil
			}
			copied[component] = true
			found, err := findComponent(files, folder, name, component)
			if err != nil {
				return err
			}
			group, id, _ := strings.Cut(component, "/")
			groups := member(member(document, "components"), group)
			if groups == nil || member(groups, id) != nil {
				return fmt.Errorf("%s of %s has no free place in components", component, name)
			}
			setMember(groups, id, found)
			return visit(found, name)
		}
		for _, item := range node.Content {
			if err := visit(item, file); err != nil {
				return err
			}
		}
		return nil
	}
	return visit(document, "")
}

// findComponent returns a copy of the component of the file name, for example schemas/Call. The
// parsed files are kept in files.
func findComponent(files map[string]*yaml.Node, folder, name, component string) (*yaml.Node, error) {
	if files[name] == nil {
		source, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		if files[name], err = parseDocument(source); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	found := member(files[name], "components")
	for key := range strings.SplitSeq(component, "/") {
		found = member(found, key)
	}
	if found == nil {
		return nil, fmt.Errorf("%s has no component %s", name, component)
	}
	return resolve(found)
}

// setMember replaces the value of a key in a mapping. A new key is appended.
func setMember(node *yaml.Node, key string, value *yaml.Node) {
	if present := member(node, key); present != nil {
		*present = *value
		return
	}
	node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
}

func member(node *yaml.Node, key string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// keepMembers removes the members of a mapping for which isKept returns false.
func keepMembers(node *yaml.Node, isKept func(key string, value *yaml.Node) bool) {
	var kept []*yaml.Node
	for i := 0; i < len(node.Content); i += 2 {
		if isKept(node.Content[i].Value, node.Content[i+1]) {
			kept = append(kept, node.Content[i], node.Content[i+1])
		}
	}
	node.Content = kept
}

// forGenerator adds the order of fields, because oapi-codegen would otherwise sort them. It also
// removes the error responses whose type is the type of the default response, ErrorResponse. The
// client then has one type for all errors.
func forGenerator(node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		for _, item := range node.Content {
			forGenerator(item)
		}
		return
	}
	if properties := member(node, "properties"); properties != nil && properties.Kind == yaml.MappingNode {
		order(properties)
	}
	if responses := member(node, "responses"); responses != nil && member(responses, "default") != nil {
		keepMembers(responses, func(status string, answer *yaml.Node) bool {
			return !strings.HasPrefix(status, "4") && !strings.HasPrefix(status, "5") || hasOwnSchema(answer)
		})
	}
	keepMembers(node, func(key string, _ *yaml.Node) bool { return key != "headers" })
	for _, item := range node.Content {
		forGenerator(item)
	}
}

func order(properties *yaml.Node) {
	for i := 1; i < len(properties.Content); i += 2 {
		field := properties.Content[i]
		// move the reference into allOf, because OpenAPI ignores other members beside $ref
		if ref := member(field, "$ref"); ref != nil {
			*field = yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
				{Kind: yaml.ScalarNode, Tag: "!!str", Value: "allOf"},
				{Kind: yaml.SequenceNode, Content: []*yaml.Node{{Kind: yaml.MappingNode, Content: field.Content}}},
			}}
		}
		field.Content = append(field.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "x-order"},
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(i / 2)})
	}
}

// hasOwnSchema reports whether an error response has a schema other than ErrorResponse.
func hasOwnSchema(answer *yaml.Node) bool {
	schema := member(member(member(member(answer, "content"), "application/json"), "schema"), "$ref")
	return schema != nil && schema.Value != "#/components/schemas/ErrorResponse"
}

// encode returns indented JSON with the members in the order of the document.
func encode(node *yaml.Node) ([]byte, error) {
	var compact bytes.Buffer
	if err := writeJSON(&compact, node); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact.Bytes(), "", " "); err != nil {
		return nil, fmt.Errorf("indent: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func writeJSON(out *bytes.Buffer, node *yaml.Node) error {
	switch node.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		return writeAll(out, node)
	default:
		var value any
		if err := node.Decode(&value); err != nil {
			return fmt.Errorf("read %q: %w", node.Value, err)
		}
		text, err := plain(value)
		if err != nil {
			return err
		}
		out.Write(text)
		return nil
	}
}

func writeAll(out *bytes.Buffer, node *yaml.Node) error {
	open, shut := byte('['), byte(']')
	if node.Kind == yaml.MappingNode {
		open, shut = '{', '}'
	}
	out.WriteByte(open)
	for i, item := range node.Content {
		switch {
		case node.Kind == yaml.MappingNode && i%2 == 1:
			out.WriteByte(':')
		case i > 0:
			out.WriteByte(',')
		}
		if err := writeJSON(out, item); err != nil {
			return err
		}
	}
	out.WriteByte(shut)
	return nil
}

func plain(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("write %v: %w", value, err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}
