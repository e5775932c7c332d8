package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

type trunksTrace struct {
	Name string `arg:"" help:"Name or id of the trunk."`
	Pcap string `placeholder:"FILE" help:"Write a packet capture for Wireshark. TCP and TLS messages are written as UDP."`
	Call string `placeholder:"CALL-ID" help:"Show only messages with this SIP Call-ID, which calls attempts prints."`
}

func (c trunksTrace) Run(ctx context.Context, d *Client) error {
	id, err := trunkID(ctx, d, c.Name)
	if err != nil {
		return err
	}
	query := url.Values{"format": {"text"}}
	if c.Call != "" {
		query.Set("sip_call_id", c.Call)
	}
	if c.Pcap != "" {
		query.Set("format", "pcap")
	}
	trace, err := d.Fetch(ctx, At("trunks", id, "trace")+"?"+query.Encode())
	if err != nil {
		return err
	}
	if c.Pcap != "" {
		if err := os.WriteFile(c.Pcap, trace, 0o600); err != nil {
			return fmt.Errorf("write packet capture: %w", err)
		}
		return c.print(d, fmt.Sprintf("%d bytes written to %s.", len(trace), c.Pcap))
	}
	if len(trace) == 0 {
		return c.print(d, "No message was recorded.")
	}
	return c.print(d, string(trace))
}

func (c trunksTrace) print(d *Client, text string) error {
	if d.JSON() {
		encoded, err := json.Marshal(map[string]string{"trace": text})
		if err != nil {
			return fmt.Errorf("encode trace: %w", err)
		}
		return d.Member(encoded)
	}
	var faults []error
	for line := range strings.Lines(text) {
		faults = append(faults, d.Say(strings.TrimRight(line, "\r\n")))
	}
	return errors.Join(faults...)
}
