package pages

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) storyRoutes() []route {
	return []route{
		{"GET /w/{workspace}/calls/{call}", showCall},
		{"GET /w/{workspace}/calls/{call}/recording", playRecording},
		{"GET /w/{workspace}/call-requests/{request}", showRequest},
		{"GET /w/{workspace}/call-requests/{request}/json", showRequestJSON},
	}
}

type storyData struct {
	Request *openapi.CallRequest
	Call    *openapi.Call
	Entries []storyEntry
	Turns   []openapi.TranscriptTurn
	// NoTranscript is the reason why the page has no transcript, such as "unanswered". It is empty
	// if the page has a transcript.
	NoTranscript string
	Recording    bool
	summary      *openapi.CallSummary
	Agents       agentNames
	// AnsweredAt is the time at which the recording begins. Positions in the recording count from
	// this time.
	AnsweredAt time.Time
}

// showCall shows a call with the timeline of its request.
func showCall(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("call"))
	if err != nil {
		return view{}, errNotFound
	}
	call, err := gateway.Get[openapi.Call](v.r.Context(), v.Session, v.admin("/calls/%s", id), nil)
	if err != nil {
		return view{}, err
	}
	data := storyData{Call: &call}
	reads := []func() error{v.readTalk(&data)}
	if call.CallRequestID != nil {
		reads = append(reads, v.readStory(&data, *call.CallRequestID)...)
	}
	return v.story(data, "calls", concurrently(reads...))
}

// showRequest shows a call request. If it has a call, the page shows the call, too.
func showRequest(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("request"))
	if err != nil {
		return view{}, errNotFound
	}
	var data storyData
	if err := concurrently(v.readStory(&data, id)...); err != nil {
		return view{}, err
	}
	if call := data.Request.CallID; call != nil {
		var full openapi.Call
		err = concurrently(func() error {
			var err error
			full, err = gateway.Get[openapi.Call](v.r.Context(), v.Session, v.admin("/calls/%s", call), nil)
			return err
		})
		switch refused := gateway.AsError(err); {
		case err == nil:
			data.Call = &full
			err = v.readTalk(&data)()
		case refused != nil && refused.Status == http.StatusNotFound:
			err = nil // the call was deleted after its retention, or its first event has not arrived
		}
	}
	return v.story(data, "requests", err)
}

func (v *visit) story(data storyData, nav string, err error) (view, error) {
	if err != nil {
		return view{}, err
	}
	to := ""
	switch {
	case data.Call != nil && data.Call.Direction == openapi.Inbound:
		to = data.Call.From
	case data.Call != nil:
		to = data.Call.To
	case data.Request != nil:
		to = data.Request.To
	}
	if data.Call != nil && data.Call.Timings.AnsweredAt != nil {
		data.AnsweredAt = data.Call.Timings.AnsweredAt.Time
	}
	heading := v.mask(to)
	return view{template: "story", title: "story.title", heading: heading, nav: nav, data: data}, nil
}

// readStory returns the functions that read a call request and its timeline.
func (v *visit) readStory(data *storyData, id uuid.UUID) []func() error {
	base := "/v1/call-requests/" + id.String()
	return []func() error{
		func() error {
			request, err := gateway.Get[openapi.CallRequest](v.r.Context(), v.Session, base, nil)
			data.Request = &request
			return err
		},
		func() error {
			timeline, err := gateway.Get[openapi.Timeline](v.r.Context(), v.Session, base+"/timeline", nil)
			data.Entries = storyOf(timeline)
			return err
		},
		func() error {
			var agents gateway.Page[gateway.Agent]
			err := v.readAgents(&agents)()
			data.Agents = agents.Data
			return err
		},
	}
}

// readTalk reads the transcript, the summary and the link of the recording, if the person may read
// them.
func (v *visit) readTalk(data *storyData) func() error {
	return func() error {
		if data.Call.Timings.AnsweredAt == nil {
			data.NoTranscript = "unanswered"
			return nil
		}
		if v.role == gateway.Operator && v.Reason == "" {
			data.NoTranscript = "reason"
			return nil
		}
		full, err := gateway.Get[openapi.Call](v.r.Context(), v.Session, "/v1/calls/"+data.Call.CallID.String(), nil)
		switch refused := gateway.AsError(err); {
		case refused != nil && refused.Status == http.StatusForbidden:
			data.NoTranscript = "forbidden"
			return nil
		case err != nil:
			return err
		}
		data.summary = full.Summary
		data.Recording = full.RecordingURL != nil && data.Call.Timings.EndedAt != nil
		switch {
		case full.Transcript != nil && len(full.Transcript.Turns) > 0:
			data.Turns = full.Transcript.Turns
		case full.Transcript != nil || data.Call.Timings.EndedAt == nil:
			data.NoTranscript = "later"
		default:
			data.NoTranscript = "none"
		}
		return nil
	}
}

// showRequestJSON shows the timeline as the API returns it.
func showRequestJSON(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("request"))
	if err != nil {
		return view{}, errNotFound
	}
	timeline, err := gateway.Get[json.RawMessage](
		v.r.Context(),
		v.Session,
		"/v1/call-requests/"+id.String()+"/timeline",
		nil,
	)
	if err != nil {
		return view{}, err
	}
	v.w.Header().Set("Content-Type", "application/json")
	_, _ = v.w.Write([]byte(v.mask(string(timeline)))) // an error means that the browser has disconnected
	return view{written: true}, nil
}

// recordingHeaders are the headers of a recording that the browser receives.
var recordingHeaders = []string{
	"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified",
}

// recordingTimeout limits the transfer of a recording to a browser.
const recordingTimeout = 10 * time.Minute

// playRecording sends the recording of a call, or the range that the browser requests. The browser
// never gets the signed link.
func playRecording(v *visit) (view, error) {
	id, err := uuid.Parse(v.r.PathValue("call"))
	if err != nil {
		return view{}, errNotFound
	}
	recording, err := gateway.Get[openapi.Recording](
		v.r.Context(),
		v.Session,
		"/v1/calls/"+id.String()+"/recording",
		nil,
	)
	if err != nil {
		return view{}, err
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), recordingTimeout)
	defer cancel()
	response, err := v.FetchRecording(ctx, recording.URL, v.r.Header)
	if err != nil {
		return view{}, err
	}
	defer func() { _ = response.Body.Close() }()
	for _, name := range recordingHeaders {
		if value := response.Header.Get(name); value != "" {
			v.w.Header().Set(name, value)
		}
	}
	if kind := response.Header.Get("Content-Type"); !strings.HasPrefix(kind, "audio/") {
		v.w.Header().Set("Content-Type", "application/octet-stream")
	}
	control := http.NewResponseController(v.w)
	// The error is ignored: the ResponseWriter of a test does not support deadlines.
	_ = control.SetWriteDeadline(time.Now().Add(recordingTimeout))
	v.w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(v.w, response.Body) // an error means that one side has disconnected
	return view{written: true}, nil
}

// storyEntry is one sentence, which the page shows for an entry in the timeline of a call request.
type storyEntry struct {
	At   openapi.Timestamp
	Icon string
	Tone string
	// Key is the key of the sentence in the catalogue, with Args for its values. If the catalogue
	// has no sentence for a type, Message is shown.
	Key     string
	Args    []any
	Message string
	// Note is a further sentence of the service, for example the reason of a refusal.
	Note     string
	Gates    []openapi.GateReport
	Details  map[string]any
	Delivery string // the id of the delivery
}

// storyOf translates the entries of a timeline.
func storyOf(timeline openapi.Timeline) []storyEntry {
	entries := make([]storyEntry, 0, len(timeline.Data))
	for _, e := range timeline.Data {
		entry := storyEntry{At: e.At, Icon: "circle-check", Key: "story." + e.Type, Message: e.Message, Details: e.Details}
		detail := func(name string) string { return textOf(e.Details[name]) }
		switch kind, step, _ := strings.Cut(e.Type, "."); {
		case e.Type == "call_request.created":
			entry.Icon, entry.Args = "plus", []any{detail("to")}
		case kind == "call_request":
			entry.Icon, entry.Tone, entry.Note = "check", tone(step), detail("error_detail")
		case kind == "decision":
			entry.decide(e)
		case e.Type == "attempt.started":
			entry.Icon, entry.Tone = "send", "busy"
		case e.Type == "attempt.ended":
			entry.Icon, entry.Args = "network", []any{sipResult(e.Details), detail("hangup_cause")}
			if detail("hangup_cause") == "" && detail("sip_status") == "" {
				entry.Key = "story.attempt.ended.plain"
			}
			entry.Note = detail("error")
		case e.Type == "call.dialed":
			entry.Icon, entry.Tone, entry.Args = "phone-outgoing", "busy", []any{detail("from"), detail("to")}
		case e.Type == "call.answered":
			entry.Icon, entry.Tone = "phone", "good"
		case e.Type == "call.ended":
			entry.Icon, entry.Tone = "phone-off", tone(detail("status"))
			entry.Key, entry.Args = "story.call.ended."+detail("status"), []any{formatSeconds(e.Details["talk_seconds"])}
		case e.Type == "delivery.created":
			entry.Icon, entry.Tone, entry.Args = "webhook", tone(detail("status")), []any{detail("event_type")}
			entry.Key, entry.Delivery = "story.delivery."+detail("status"), e.ObjectID.String()
		case e.Type == "delivery.attempted":
			entry.attempt(e)
		}
		entries = append(entries, entry)
	}
	return entries
}

func (entry *storyEntry) decide(e openapi.TimelineEntry) {
	result, kind := textOf(e.Details["result"]), textOf(e.Details["kind"])
	entry.Key, entry.Tone = "story.decision."+kind+"."+result, tone(result)
	entry.Icon = map[string]string{"open": "shield-check", "later": "clock"}[result]
	if entry.Icon == "" {
		entry.Icon = "shield-x"
	}
	if text, err := json.Marshal(e.Details["gates"]); err == nil {
		// if the gates cannot be decoded, the page shows them only in the details
		_ = json.Unmarshal(text, &entry.Gates)
	}
	for _, gate := range entry.Gates {
		if gate.Result == "failed" {
			entry.Note = gate.Reason
			break
		}
	}
}

func (entry *storyEntry) attempt(e openapi.TimelineEntry) {
	status, failed := textOf(e.Details["status_code"]), textOf(e.Details["error"])
	entry.Icon, entry.Tone, entry.Delivery = "webhook", "good", e.ObjectID.String()
	entry.Args = []any{textOf(e.Details["event_type"]), status, textOf(e.Details["duration_ms"])}
	switch {
	case status == "":
		entry.Key, entry.Tone, entry.Note = "story.delivery.attempted.error", "bad", failed
	case !strings.HasPrefix(status, "2"):
		entry.Tone, entry.Note = "bad", failed
	}
}

// sipResult returns the SIP response of an attempt, for example "486 Busy Here".
func sipResult(details map[string]any) string {
	return strings.TrimSpace(textOf(details["sip_status"]) + " " + textOf(details["sip_reason"]))
}

// Translated reports whether the page's language has a text for the key.
func (p *pageData) Translated(key string) bool {
	return p.visit.server.templates.texts[p.Language][key] != ""
}

// Sentence returns the sentence of an entry in the language of the person. The time of a deferral
// is in the time zone of the person.
func (p *pageData) Sentence(e storyEntry) string {
	if !p.Translated(e.Key) {
		return p.Phone(e.Message)
	}
	args := make([]any, 0, len(e.Args)+1)
	for _, arg := range e.Args {
		args = append(args, p.Phone(arg))
	}
	if at, ok := timeOf(e.Details["call_at"]); ok && len(args) == 0 {
		local := at.In(p.Zone)
		args = append(args, p.date(local)+local.Format(", 15:04"))
	}
	return p.visit.server.templates.text(p.Language, e.Key, args...)
}

// Offset returns the seconds between the answer of the call and a turn of the transcript.
func (d storyData) Offset(turn openapi.TranscriptTurn) float64 {
	if d.AnsweredAt.IsZero() {
		return 0
	}
	return max(0, turn.At.Sub(d.AnsweredAt).Seconds())
}

// Summary returns the summary of the conversation as text, or nothing.
func (d storyData) Summary() (facts []fact) {
	if d.summary == nil {
		return nil
	}
	var members map[string]any
	if json.Unmarshal(*d.summary, &members) != nil {
		return nil
	}
	for _, name := range summaryOrder(members) {
		if text := summaryText(members[name]); text != "" {
			at, isTime := timeOf(members[name])
			facts = append(facts, fact{Name: name, Text: text, Time: at, IsTime: isTime})
		}
	}
	return facts
}

// summaryOrder returns the keys of a summary: first the usual keys, then the others by name. It
// leaves out the outcome, which is beside the heading of the page.
func summaryOrder(members map[string]any) []string {
	names := []string{
		"customer_name",
		"business_type",
		"key_interests",
		"key_objections",
		"next_action",
		"scheduled_for",
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(names, name) && name != "outcome" {
			names = append(names, name)
		}
	}
	return names
}

// fact is a value of a summary. It has a Time if IsTime is true.
type fact struct {
	Name, Text string
	Time       time.Time
	IsTime     bool
}

func summaryText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case []any:
		var parts []string
		for _, part := range v {
			parts = append(parts, summaryText(part))
		}
		return strings.Join(parts, " · ")
	case map[string]any:
		text, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		return string(text)
	}
	return textOf(value)
}
