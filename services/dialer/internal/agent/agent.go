// Package agent contains the code that all kinds of AI agents share: settings, the input of a
// model, transcripts and judgements, the WebSocket to a model, and the interface of a session. It
// also contains the scripted agent, which uses no model. The subpackages live, realtime and mediaws
// contain the other kinds of agents. Package conversation connects a session with a call.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Roles of a turn in a transcript.
const (
	RolePerson = "person"
	RoleAgent  = "agent"
)

// Turn is one entry of a transcript: what the person or the agent says without a break.
type Turn struct {
	Role string    `json:"role"`
	Text string    `json:"text"`
	At   time.Time `json:"at"`
	// EndedAt is the time at which the last audio frame of an agent's turn was sent. It is zero for
	// a turn of the person, or if the time is not known.
	EndedAt time.Time `json:"ended_at,omitzero"`
}

// DisclosureRecord states which part of the disclosure was played in a call. In the disclosure, the
// agent says that it is an AI. StartedAt is nil if no part was played.
type DisclosureRecord struct {
	// Text is the text that the agent had to say: the disclosure and, if the call is recorded, the
	// recording notice.
	Text      string     `json:"text"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	// FinishedAt is the time of the last frame of the disclosure if all of it was played. Otherwise
	// CutAt is the time of the last frame that was played.
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	CutAt      *time.Time `json:"cut_at,omitempty"`
}

// ErrBroken means that the agent failed and the call must be hung up.
var ErrBroken = errors.New("the agent failed")

// FrameBytes is the number of bytes of 20 ms of audio. All audio in the dialer is 8 kHz mu-law.
const FrameBytes = 160

// BytesPerSecond is the number of bytes of one second of audio.
const BytesPerSecond = 8000

// Duration returns the length of audio with the given number of bytes.
func Duration(bytes int) time.Duration { return time.Duration(bytes) * time.Second / BytesPerSecond }

// Spec is the input for a new session.
type Spec struct {
	CallID, AgentID, WorkspaceID uuid.UUID

	Settings Settings
	// Variables is a JSON object, or nil. It contains the contact's variables, merged with those of
	// the call request. The values are untrusted input.
	Variables json.RawMessage
	// Notice is the recording notice, which is spoken directly after the disclosure. It is empty if
	// the call is not recorded. NoticeKnown is true if Notice is in the agent's language.
	Notice      string
	NoticeKnown bool
	// Key is the workspace's key for its base URL. For an agent of kind media_ws, it is the secret
	// that signs the handshake with the media URL. Key must not be logged.
	Key string
	// Zone is the person's time zone. Now is the time at which the call started.
	Zone *time.Location
	Now  time.Time
}

// Opener opens sessions with agents of one kind. Open returns when the agent is ready to speak, or
// with an error if ctx ends first.
type Opener interface {
	Open(ctx context.Context, spec Spec) (Session, error)
}

// Session is one audio conversation with an agent. Its methods never block and are safe for
// concurrent use. After the end of the session they have no effect.
type Session interface {
	// Begin starts the conversation. It is called when the person has answered. Before Begin, the
	// agent neither speaks nor receives audio.
	Begin()
	// HearAudio sends 20 ms of the person's audio to the agent. If the connection is too slow,
	// HearAudio drops the frame and counts it.
	HearAudio(frame []byte)
	// HearDigit sends the DTMF digit of a key that the person pressed.
	HearDigit(digit byte)
	// Events returns the events of the session. The last event is Failed or Closed; then the
	// channel is closed. The caller must read until the channel is closed.
	Events() <-chan Event
	// Say makes the agent speak a text, such as a farewell or a message for an answering machine. If
	// the agent is already speaking, it speaks the text afterwards.
	Say(text string)
	// Interrupted informs the agent that an item was not played to its end, and that its remaining
	// audio was discarded. played is the length of the audio that was sent to the person.
	Interrupted(item string, played time.Duration)
	// Played informs the agent that an item was played to its end.
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
//   - SpeechStarted: the person began to speak, so the queued audio is out of date. If Item is set,
//     an Utterance with this item follows. Its text is empty if the agent understood no words.
//   - Clear: the agent requests that its queued audio is discarded.
//   - Disclosed: the agent has sent the whole disclosure. Item is the last item of the disclosure.
//   - Noticed: the agent has sent all of Spec.Notice. Item is the last item of the notice.
//   - Utterance is a text of the person or the agent. After an interruption it can be incomplete.
//   - ToolCall: the agent calls a tool.
//   - TurnDone: the agent says nothing more until the next input.
//   - Failed: the agent failed.
//   - Closed: the agent or Close ended the conversation.
const (
	Audio         Kind = "audio"
	ItemDone      Kind = "item_done"
	SpeechStarted Kind = "speech_started"
	Clear         Kind = "clear"
	Disclosed     Kind = "disclosed"
	Noticed       Kind = "noticed"
	Utterance     Kind = "said"
	ToolCall      Kind = "tool_call"
	TurnDone      Kind = "turn_done"
	Failed        Kind = "failed"
	Closed        Kind = "closed"
)

// Event is one event of an agent.
type Event struct {
	Kind Kind
	// Item is the id of an utterance: the agent's in Audio and ItemDone, the person's in
	// SpeechStarted. In Utterance, Item can be empty.
	Item string
	// The receiver may keep and change the slice Audio. Keep is true if the person's speech must not
	// interrupt the audio. Asked is true for audio that Say requested, if the session can identify
	// such audio.
	Audio       []byte
	Keep, Asked bool
	// Disclosure is true for audio of the disclosure and of the recording notice.
	Disclosure bool
	// Role and Text are set in Utterance.
	Role, Text string
	// Tool, ID and Args are set in ToolCall.
	Tool, ID string
	Args     json.RawMessage
	// Err is set in Failed. Dropped is set in the last event of a session: the number of the person's
	// audio frames that the agent did not receive.
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
	// ToolStopRecording is the tool that the agent calls if the person does not want to be recorded.
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
