// Package agent has what all kinds of AI agents share: their settings, the input of a model,
// transcripts and judgements, the WebSocket to a model, and the interface of a session. It also has
// the scripted agent. The packages below it have the other kinds; package conversation connects a
// session with a call.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Roles of a turn.
const (
	RolePerson = "person"
	RoleAgent  = "agent"
)

// Turn is one utterance.
type Turn struct {
	Role string    `json:"role"`
	Text string    `json:"text"`
	At   time.Time `json:"at"`
	// EndedAt is when the last frame of an agent's turn was sent. It is zero if that is not known.
	EndedAt time.Time `json:"ended_at,omitzero"`
}

// DisclosureRecord states what was played of the disclosure in one call. If StartedAt is nil,
// nothing of it was played. Otherwise FinishedAt or CutAt is the time of the last frame.
type DisclosureRecord struct {
	// Text is what the agent was asked to say: the disclosure, and the notice if the call is
	// recorded.
	Text       string     `json:"text"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	CutAt      *time.Time `json:"cut_at,omitempty"`
}

// ErrBroken means that the agent failed and the call must be hung up.
var ErrBroken = errors.New("the agent failed")

// FrameBytes is the size of 20 ms of audio. All audio in the dialer is 8 kHz mu-law.
const FrameBytes = 160

// BytesPerSecond is the size of one second of audio.
const BytesPerSecond = 8000

// Duration returns the length of so many bytes of audio.
func Duration(bytes int) time.Duration { return time.Duration(bytes) * time.Second / BytesPerSecond }

// Spec is the input for a new session.
type Spec struct {
	CallID, AgentID, WorkspaceID uuid.UUID

	Settings Settings
	// Variables are the contact's variables, merged with those of the request: a JSON object, or
	// nil. Strangers can write them.
	Variables json.RawMessage
	// Notice is spoken directly after the disclosure, if the call is recorded. It is empty if the
	// call is not recorded. NoticeKnown means that it is in the agent's language.
	Notice      string
	NoticeKnown bool
	// Key is the workspace's key for its base URL, or its secret for its media URL. It must not be
	// logged.
	Key string
	// Zone is the person's time zone. Now is the start of the call.
	Zone *time.Location
	Now  time.Time
}

// Opener opens sessions. Open returns after the agent is ready to speak, or an error when ctx ends.
type Opener interface {
	Open(ctx context.Context, spec Spec) (Session, error)
}

// Session is one conversation with an agent, in audio. Its methods never block and are safe for
// concurrent use. After the end they have no effect.
type Session interface {
	// Begin starts the conversation, because the person has answered. Before it the agent neither
	// speaks nor hears.
	Begin()
	// HearAudio sends 20 ms of the person's audio to the agent. Audio that the connection cannot
	// take is dropped and counted.
	HearAudio(frame []byte)
	// HearDigit sends a key that the person pressed.
	HearDigit(digit byte)
	// Events ends with Failed or Closed, and is then closed. It must be read until then.
	Events() <-chan Event
	// Say makes the agent speak a text as soon as it does not speak, such as a farewell or a
	// message for an answering machine.
	Say(text string)
	// Interrupted reports that an item stopped after the duration played was sent. The rest was
	// discarded.
	Interrupted(item string, played time.Duration)
	// Played reports that a whole item was sent.
	Played(item string)
	// ToolResult sends the result of a ToolCall to the agent.
	ToolResult(id string, result json.RawMessage)
	// Close ends the session.
	Close()
}

// Kind is the kind of an event.
type Kind string

// Kinds of events.
//
//   - Audio is a piece of an item, of any length. An item is one utterance of the agent.
//   - ItemDone is the end of an item.
//   - SpeechStarted: the person began to speak. Queued audio is out of date.
//   - Clear: the agent discards its queued audio.
//   - Disclosed: the agent has sent the whole disclosure. Item is its last item.
//   - Noticed: the agent has sent all of Spec.Notice. Item is its last item.
//   - Said is a text: complete, or after an interruption as far as it is known.
//   - ToolCall: the agent calls a tool.
//   - TurnDone: the agent says nothing more until something happens.
//   - Failed: the agent failed.
//   - Closed: the agent or Close ended the conversation.
const (
	Audio         Kind = "audio"
	ItemDone      Kind = "item_done"
	SpeechStarted Kind = "speech_started"
	Clear         Kind = "clear"
	Disclosed     Kind = "disclosed"
	Noticed       Kind = "noticed"
	Said          Kind = "said"
	ToolCall      Kind = "tool_call"
	TurnDone      Kind = "turn_done"
	Failed        Kind = "failed"
	Closed        Kind = "closed"
)

// Event is one event of an agent.
type Event struct {
	Kind Kind
	// Item is the id of an utterance: the agent's in Audio, ItemDone and Said, the person's in
	// SpeechStarted and Said. It can be empty in Said.
	Item string
	// Audio belongs to the receiver. Keep means that a barge-in does not interrupt it: it is the
	// disclosure or a text of Say. Asked marks a text of Say, if the session knows it.
	Audio       []byte
	Keep, Asked bool
	// Disclosure marks audio of the disclosure and of the notice of a recording.
	Disclosure bool
	// Role and Text are set in Said.
	Role, Text string
	// Tool, ID and Args are set in ToolCall.
	Tool, ID string
	Args     json.RawMessage
	// Err is set in Failed. Dropped is set in the last event: the frames that the agent did not
	// receive.
	Err     error
	Dropped int64
}

// Tools that an agent can call.
const (
	ToolEndCall   = "end_call"
	ToolOptOut    = "opt_out"
	ToolCallback  = "schedule_callback"
	ToolVoicemail = "voicemail_detected"
	ToolTransfer  = "transfer"
	ToolDigits    = "press_digits"
	// ToolStopRecording is called if the person does not want to be recorded.
	ToolStopRecording = "stop_recording"
)

// IsRefusal reports whether the result of a tool call is a refusal. The agent can then call the
// tool again.
func IsRefusal(result json.RawMessage) bool {
	var state struct {
		State string `json:"state"`
	}
	return json.Unmarshal(result, &state) == nil && state.State == "refused"
}
