package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"ringfence.dev/cmd/ringfence/internal/operator"
)

// call contains the fields of a call that the commands print.
type call struct {
	CallID         string      `json:"call_id"`
	To             string      `json:"to"`
	Status         string      `json:"status"`
	HangupCause    *string     `json:"hangup_cause"`
	Outcome        *string     `json:"outcome"`
	Disposition    *string     `json:"disposition"`
	CreditsCharged json.Number `json:"credits_charged"`
	ExternalRef    *string     `json:"external_ref"`
	Summary        *summary    `json:"summary"`
	Timings        struct {
		RingSeconds  *int `json:"ring_seconds"`
		TalkSeconds  *int `json:"talk_seconds"`
		TotalSeconds *int `json:"total_seconds"`
	} `json:"timings"`
}

type summary struct {
	Outcome       string   `json:"outcome"`
	Confidence    float64  `json:"confidence"`
	NextAction    string   `json:"next_action"`
	BusinessType  string   `json:"business_type"`
	CustomerName  string   `json:"customer_name"`
	KeyInterests  []string `json:"key_interests"`
	KeyObjections []string `json:"key_objections"`
	ScheduledFor  string   `json:"scheduled_for"`
}

// callPrinter prints the events of a call, each with the time since the start of the command.
type callPrinter struct {
	out   io.Writer
	start time.Time
}

func newStory(out io.Writer) *callPrinter { return &callPrinter{out: out, start: time.Now()} }

func (s *callPrinter) title(format string, args ...any) {
	fmt.Fprintf(s.out, format+"\n\n", args...)
}

func (s *callPrinter) step(what, format string, args ...any) {
	fmt.Fprintf(s.out, "  %6.2f s  %-10s  %s\n", time.Since(s.start).Seconds(), what, operator.Printable(fmt.Sprintf(format, args...)))
}

func (s *callPrinter) raw(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// printLimit prints the subscriptions that use up the workspace's limit, each with the command that
// deletes it. It is called when the limit is reached.
func (s *callPrinter) printLimit(full *limitError) {
	s.raw("  %s\n\n", operator.Printable(full.Error()))
	for _, sub := range full.subscriptions {
		s.raw("    bin/ringfence webhooks remove %s    # %s\n",
			operator.Printable(sub.ID), operator.Printable(sub.Name+", "+sub.URL))
	}
	s.raw("\n  `pause` in the place of `remove` keeps a subscription, which then receives no events.\n")
}

// printSummary prints the result of the call. It omits fields that have no value.
func (s *callPrinter) printSummary(c call) {
	s.raw("\n  %s\n\n", operator.Printable(fmt.Sprintf("Call %s to %s: %s", c.CallID, c.To, c.Status)))
	s.field("outcome", text(c.Outcome))
	s.field("reached", text(c.Disposition))
	s.field("ended by", text(c.HangupCause))
	s.field("rang", seconds(c.Timings.RingSeconds))
	s.field("talked", seconds(c.Timings.TalkSeconds))
	if c.CreditsCharged != "" {
		s.field("charged", c.CreditsCharged.String()+" credits")
	}
	if found := c.Summary; found != nil {
		s.field("customer", found.CustomerName)
		s.field("business", found.BusinessType)
		s.field("interests", strings.Join(found.KeyInterests, ", "))
		s.field("objections", strings.Join(found.KeyObjections, ", "))
		s.field("next action", found.NextAction)
		s.field("scheduled for", found.ScheduledFor)
		s.field("confidence", fmt.Sprintf("%.0f %%", 100*found.Confidence))
	}
	s.raw("\n")
}

func (s *callPrinter) field(name, value string) {
	if value != "" {
		s.raw("    %-14s %s\n", name, operator.Printable(value))
	}
}

func seconds(n *int) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%d s", *n)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
