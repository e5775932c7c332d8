// Package agent owns what an AI agent is to a call, whichever kind it is: what it is told before (Spec), what is said (turns, transcript), what it does while it
// talks (Session, its Events) and what is made of the call afterwards. The kinds are packages below it; the telephone is the bridge's.
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

// Turn is one thing said.
type Turn struct {
	Role string    `json:"role"`
	Text string    `json:"text"`
	At   time.Time `json:"at"`
	// EndedAt is when the last frame of an agent's turn was sent. It is zero if that is not known.
	EndedAt time.Time `json:"ended_at,omitzero"`
}

// DisclosureRecord states what was played of the disclosure in one call. If StartedAt is nil, nothing
// of it was played. Otherwise either FinishedAt or CutAt is set: the time of the last frame.
type DisclosureRecord struct {
	// Text is what the agent was asked to say: the disclosure, and the notice if the call is recorded.
	Text       string     `json:"text"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	CutAt      *time.Time `json:"cut_at,omitempty"`
}

// ErrBroken says that the agent cannot go on: the call is to be hung up.
var ErrBroken = errors.New("the agent broke")

// FrameBytes is 20 ms of audio: 8 kHz mu-law, as all audio inside the house.
const FrameBytes = 160

// BytesPerSecond of audio.
const BytesPerSecond = 8000

// Duration is how long so many bytes of audio are.
func Duration(bytes int) time.Duration { return time.Duration(bytes) * time.Second / BytesPerSecond }

// Spec is what a session is opened with.
type Spec struct {
	CallID, AgentID, WorkspaceID uuid.UUID

	Settings Settings
	// Variables is the contact's, merged with the request's: a JSON object of strangers' words, or nil.
	Variables json.RawMessage
	// Notice is said right behind the disclosure: that the call is recorded; empty: it is not. NoticeKnown says that it is in the agent's language.
	Notice      string
	NoticeKnown bool
	// Key is the workspace's own for its base URL, or its secret for its media URL. It is in no log.
	Key string
	// Zone is the person's, and Now the instant at which the call begins.
	Zone *time.Location
	Now  time.Time
}

// Opener connects an agent. Open returns once the agent could talk: for as long as ctx lets it.
type Opener interface {
	Open(ctx context.Context, spec Spec) (Session, error)
}

// Session is one conversation with an agent, in audio. Its methods never block, may be called at once and after the end, and do nothing then.
type Session interface {
	// Begin says that the person is there. Nothing is said, and nothing heard, before.
	Begin()
	// HearAudio takes 20 ms of the person's audio; what the way to the agent has no room for is dropped and counted.
	HearAudio(frame []byte)
	// HearDigit takes a key that the person pressed.
	HearDigit(digit byte)
	// Events ends with Failed or Closed, after which it is closed. It must be read until then.
	Events() <-chan Event
	// Say has the agent say this, in its own voice, as soon as it does not speak: a message to a machine, a farewell.
	Say(text string)
	// Interrupted says that an item stopped after so much of it had left for the person; the rest was thrown away.
	Interrupted(item string, played time.Duration)
	// Played says that all of an item has left for the person.
	Played(item string)
	// ToolResult answers a ToolCall.
	ToolResult(id string, result json.RawMessage)
	// Close ends the session: the call is over.
	Close()
}

// Kind of event.
type Kind string

// Kinds of event.
//
//   - Audio is a piece, of any length, of an item. An item is one thing that the agent says.
//   - ItemDone is the end of an item.
//   - SpeechStarted: the person began to talk. What is still queued is stale.
//   - Clear: the agent discards what is queued.
//   - Disclosed: the agent has sent the whole disclosure. Item is its last item.
//   - Noticed: the agent has sent all of Spec.Notice. Item is its last item.
//   - Said is a text, complete or, after an interruption, as far as it is known.
//   - ToolCall: the agent calls a tool.
//   - TurnDone: the agent says nothing more until something happens.
//   - Failed: the agent cannot go on.
//   - Closed: the conversation was ended by the agent or by Close.
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

// Event is one thing that an agent does.
type Event struct {
	Kind Kind
	// Item names what is said: by the agent in Audio, ItemDone and Said, by the person in SpeechStarted and Said. It may be empty in Said.
	Item string
	// Audio is the receiver's. Keep says that it is played to its end, whoever talks: the disclosure, and what Say asked for, which Asked marks where the agent knows it.
	Audio       []byte
	Keep, Asked bool
	// Disclosure marks Audio of the disclosure and of the notice of a recording.
	Disclosure bool
	// Role and Text are of Said.
	Role, Text string
	// Tool, ID and Args are a ToolCall's.
	Tool, ID string
	Args     json.RawMessage
	// Err is Failed's; Dropped, at the end, is how many frames the agent never heard.
	Err     error
	Dropped int64
}

// Tools that an agent may use.
const (
	ToolEndCall   = "end_call"
	ToolOptOut    = "opt_out"
	ToolCallback  = "schedule_callback"
	ToolVoicemail = "voicemail_detected"
	ToolTransfer  = "transfer"
	ToolDigits    = "press_digits"
	// ToolStopRecording: the person does not want to be recorded.
	ToolStopRecording = "stop_recording"
)

// IsRefusal reports whether the result of a tool call is a refusal. The agent can then call the tool again.
func IsRefusal(result json.RawMessage) bool {
	var state struct {
		State string `json:"state"`
	}
	return json.Unmarshal(result, &state) == nil && state.State == "refused"
}
