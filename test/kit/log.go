package kit

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Message is one message that sipp received or sent.
type Message struct {
	At     time.Time
	Heard  bool
	CallID string
	// Method is the method of the request, or the method in the CSeq header of the response. Status
	// is 0 for requests.
	Method string
	Status int
	// To is the dialed number of an INVITE. Branch is the branch parameter of the topmost Via
	// header. Within is true for a request within a dialog.
	To, Branch string
	Within     bool
}

var (
	stamped = regexp.MustCompile(`(?m)^-{20,} (\d{4}-\d\d-\d\d[ \t]\d\d:\d\d:\d\d\.\d+)`)
	dialed  = regexp.MustCompile(`^INVITE sip:([^@;]*)@`)
	branch  = regexp.MustCompile(`(?mi)^Via:.*?branch=([^;,\s]+)`)
	callID  = regexp.MustCompile(`(?mi)^Call-ID:\s*(\S+)`)
	cseq    = regexp.MustCompile(`(?mi)^CSeq:\s*\d+\s+(\S+)`)
	toTag   = regexp.MustCompile(`(?mi)^To:.*;\s*tag=`)
)

// Messages returns all messages that sipp has logged so far, in order.
func (f *Sipp) Messages() ([]Message, error) {
	written, err := os.ReadFile(f.messages())
	if err != nil {
		return nil, err
	}
	return parse(string(written))
}

func parse(written string) (all []Message, err error) {
	at := stamped.FindAllStringSubmatchIndex(written, -1)
	for i, place := range at {
		end := len(written)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		when, err := time.ParseInLocation("2006-01-02 15:04:05.999999", strings.ReplaceAll(written[place[2]:place[3]], "\t", " "), time.Local)
		if err != nil {
			return nil, fmt.Errorf("read a time in the log of sipp: %w", err)
		}
		head, text, whole := strings.Cut(written[place[1]:end], "\n\n")
		if !whole {
			continue // sipp is still writing the message
		}
		if m, ok := read(text); ok {
			m.At, m.Heard = when, strings.Contains(head, "received")
			all = append(all, m)
		}
	}
	return all, nil
}

func read(text string) (m Message, ok bool) {
	text = strings.ReplaceAll(text, "\r", "")
	first := func(pattern *regexp.Regexp) string {
		if found := pattern.FindStringSubmatch(text); found != nil {
			return found[1]
		}
		return ""
	}
	m = Message{
		CallID: first(callID), Method: first(cseq), To: first(dialed), Branch: first(branch), Within: toTag.MatchString(text),
	}
	if status, is := strings.CutPrefix(text, "SIP/2.0 "); is {
		code, _, _ := strings.Cut(status, " ")
		if m.Status, ok = number(code); !ok {
			return m, false
		}
	}
	return m, m.CallID != "" && m.Method != ""
}

func number(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// SippCall is one call in the log of sipp. The time of an event that did not happen is zero.
type SippCall struct {
	CallID, To string
	// Dials is the number of INVITEs that began the call, without retransmissions.
	Dials int
	// Begun is the time of the INVITE, Rang of the first 18x response, and Answered of the 200
	// response. Over is the time of the first error response, CANCEL or BYE.
	Begun, Rang, Answered, Over time.Time
	// Refused is the status of the error response that sipp sent, or 0.
	Refused int
	// Canceled is true if the other side sent a CANCEL. HungUp is true if the other side sent a
	// BYE. Silent is true if sipp sent no message.
	Canceled, HungUp, Silent bool
}

// Calls returns all calls so far, in the order of their first INVITE.
func (f *Sipp) Calls() (calls []*SippCall, err error) {
	messages, err := f.Messages()
	if err != nil {
		return nil, err
	}
	return fold(messages), nil
}

func fold(messages []Message) (calls []*SippCall) {
	known, branches := map[string]*SippCall{}, map[string]bool{}
	for _, m := range messages {
		c := known[m.CallID]
		if c == nil {
			if m.To == "" || !m.Heard {
				continue
			}
			c = &SippCall{CallID: m.CallID, To: m.To, Begun: m.At, Silent: true}
			known[m.CallID], calls = c, append(calls, c)
		}
		c.take(m, branches)
	}
	return calls
}

func (c *SippCall) take(m Message, branches map[string]bool) {
	c.Silent = c.Silent && m.Heard
	once := func(at *time.Time) {
		if at.IsZero() {
			*at = m.At
		}
	}
	switch {
	case m.Heard && m.Method == "INVITE" && m.Status == 0 && !m.Within:
		if !branches[m.CallID+m.Branch] {
			branches[m.CallID+m.Branch] = true
			c.Dials++
		}
	case m.Heard && m.Method == "CANCEL" && m.Status == 0:
		c.Canceled = true
		once(&c.Over)
	case m.Method == "BYE" && m.Status == 0:
		c.HungUp = c.HungUp || m.Heard
		once(&c.Over)
	case m.Heard || m.Method != "INVITE":
	case m.Status >= 300:
		c.Refused = m.Status
		once(&c.Over)
	case m.Status >= 200:
		once(&c.Answered)
		if c.Canceled { // the call was answered despite the CANCEL, so it is not over
			c.Over = time.Time{}
		}
	case m.Status >= 180:
		once(&c.Rang)
	}
}
