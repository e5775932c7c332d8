package operator

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

type usage struct {
	Month string `required:"" placeholder:"YYYY-MM" help:"The month (UTC): 2026-06."`
}

// Run prints the CSV file, or with -o json a list with an object for each of its lines.
func (u usage) Run(ctx context.Context, o *WorkspaceClient) error {
	file, err := o.Fetch(ctx, o.at("usage")+"?"+url.Values{"month": {u.Month}}.Encode())
	if err != nil {
		return err
	}
	if o.JSON() {
		return printUsageJSON(o.Client, file)
	}
	for line := range strings.Lines(string(file)) {
		if err := o.Say(strings.TrimRight(line, "\r\n")); err != nil {
			return err
		}
	}
	return nil
}

func printUsageJSON(d *Client, file []byte) error {
	lines, err := csv.NewReader(bytes.NewReader(file)).ReadAll()
	if err != nil {
		return fmt.Errorf("read the usage: %w", err)
	}
	list := []map[string]any{}
	for i := 1; i < len(lines); i++ {
		item := map[string]any{}
		for column, value := range lines[i] {
			item[lines[0][column]] = value
			switch lines[0][column] {
			case "calls", "answered", "talk_seconds", "credits":
				item[lines[0][column]] = json.Number(value)
			}
		}
		list = append(list, item)
	}
	printed, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode the usage: %w", err)
	}
	return d.write(Escaped(printed) + "\n")
}
