package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"ringfence.dev/libs/apierr"
)

const errorsPreface = `# Error codes

This page lists every error code, when it occurs and what to do. [Errors and retries](../errors-and-retries.md) explains
the error body and the retries.
`

// writeErrors writes docs/reference/errors.md.
func writeErrors(out io.Writer) error {
	var page bytes.Buffer
	page.WriteString(errorsPreface)
	for _, section := range apierr.Catalogue() {
		fmt.Fprintf(&page, "\n## %s\n\n", section.Title)
		if section.Note != "" {
			fmt.Fprintf(&page, "%s\n\n", section.Note)
		}
		for _, entry := range section.Entries {
			status := ""
			if entry.Status != 0 {
				status = fmt.Sprintf("%d ", entry.Status)
			}
			fmt.Fprintf(&page, "- %s`%s`: %s\n", status, strings.Join(entry.Codes, "`, `"), entry.Text)
		}
	}
	_, err := out.Write(page.Bytes())
	return err
}
