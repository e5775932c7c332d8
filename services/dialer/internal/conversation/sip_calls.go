package conversation

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/media"
	"ringfence.dev/services/dialer/internal/recordings"
	"ringfence.dev/services/dialer/internal/sdp"
	"ringfence.dev/services/dialer/internal/sipcarrier"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

// Store reads the data that a conversation needs.
type Store interface {
	ConversationInputs(ctx context.Context, callID uuid.UUID) (store.ConversationInputs, error)
}

// Keys returns the keys of the workspaces' models and agents.
type Keys interface {
	Key(ctx context.Context, workspaceID, agentID uuid.UUID) (string, error)
}

// CallRecorder starts the recordings of calls.
type CallRecorder interface {
	Begin(ctx context.Context, workspaceID, callID uuid.UUID) (*recordings.Tape, error)
}

// SIPCalls creates the media streams and the conversations of SIP calls.
type SIPCalls struct {
	store   Store
	keys    Keys
	streams *media.Streams
	// address is the IP address to which far ends send audio.
	address netip.Addr
	agents  map[string]agent.Opener
	// recorder is nil if recordings cannot be stored.
	recorder CallRecorder
	spoken   func(callID uuid.UUID, number int, turn agent.Turn)
}

// OnTurn sets the function that is called for each turn of a call in progress (see
// Settings.Spoken). It must be called before the first call.
func (t *SIPCalls) OnTurn(spoken func(callID uuid.UUID, number int, turn agent.Turn)) {
	t.spoken = spoken
}

// NewSIPCalls returns a SIPCalls. The map agents contains an opener for each kind of agent. address
// is the IP address to which far ends send audio. recorder can be nil.
func NewSIPCalls(
	st Store,
	keys Keys,
	streams *media.Streams,
	address netip.Addr,
	agents map[string]agent.Opener,
	recorder CallRecorder,
) *SIPCalls {
	return &SIPCalls{store: st, keys: keys, streams: streams, address: address, agents: agents, recorder: recorder}
}

// Begin opens a media stream and creates its SDP offer. The conversation starts later, when Answer
// or Begin of the returned Conversation is called.
func (t *SIPCalls) Begin(_ context.Context, callID uuid.UUID, trunk trunks.Trunk) (sipcarrier.Conversation, error) {
	opened := &sipCall{calls: t, callID: callID, opened: make(chan struct{}), conversationDone: make(chan struct{})}
	opened.callCtx, opened.stop = context.WithCancel(context.Background())
	timeout := media.NoTimeout
	if trunk.MediaTimeoutSeconds > 0 {
		timeout = time.Duration(trunk.MediaTimeoutSeconds) * time.Second
	}
	stream, err := t.streams.Open(media.Leg{Source: opened, Sink: opened, TimedOut: opened.timedOut, Timeout: timeout})
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	opened.stream = stream
	if opened.session, err = t.describe(stream.Port(), trunk); err == nil {
		opened.offer, err = opened.session.Offer(sdp.Both)
	}
	if err != nil {
		stream.Close()
		return nil, fmt.Errorf("create the SDP offer of a stream: %w", err)
	}
	return opened, nil
}

func (t *SIPCalls) describe(port uint16, trunk trunks.Trunk) (*sdp.Session, error) {
	local := sdp.Local{Address: t.address, Port: port, Secrecy: sdp.Secrecy(trunk.SRTP)}
	for _, name := range trunk.Codecs {
		switch name {
		case trunks.PCMU:
			local.Codecs = append(local.Codecs, sdp.PCMU)
		case trunks.PCMA:
			local.Codecs = append(local.Codecs, sdp.PCMA)
		}
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	if _, err := rand.Read(local.Key[:]); err != nil {
		return nil, err
	}
	return sdp.NewSession(binary.BigEndian.Uint64(id[:]), local), nil
}

var errNoKind = errors.New("this build has no agent of this kind")

// recording is nil if the call is not recorded.
type openedAgent struct {
	session   agent.Session
	settings  Settings
	recording *callRecording
}

func (t *SIPCalls) open(ctx context.Context, callID uuid.UUID) (opened openedAgent, err error) {
	order, err := t.store.ConversationInputs(ctx, callID)
	if err != nil {
		return opened, err
	}
	settings, err := agent.ReadSettings(order.Settings)
	if err != nil {
		return opened, err
	}
	kind := settings.Kind
	if kind == "" {
		kind = agent.Scripted
	}
	opener := t.agents[kind]
	if opener == nil {
		return opened, fmt.Errorf("open agent of kind %s: %w", kind, errNoKind)
	}
	key, err := t.keys.Key(ctx, order.WorkspaceID, order.AgentID)
	if err != nil && !errors.Is(err, pg.ErrNotFound) {
		return opened, err
	}
	zone := callstate.Zone(order.TimeZone, phone.Number(order.Person))
	spec := agent.Spec{
		CallID: callID, AgentID: order.AgentID, WorkspaceID: order.WorkspaceID, Settings: settings,
		Variables: order.Variables, Key: key, Zone: zone, Now: time.Now(),
	}
	opened.settings = Settings{Agent: settings, Longest: time.Duration(order.MaxCallSeconds) * time.Second, Zone: zone}
	if t.spoken != nil {
		opened.settings.Spoken = func(number int, turn agent.Turn) { t.spoken(callID, number, turn) }
	}
	if order.Recorded && t.recorder != nil {
		spec.Notice, spec.NoticeKnown = settings.NoticeText()
	}
	opened.settings.Disclosure, _ = agent.FirstWords(spec)
	if spec.Notice != "" {
		opened.recording = &callRecording{recorder: t.recorder, workspaceID: order.WorkspaceID, callID: callID}
		opened.settings.Noticed, opened.settings.Objected = opened.recording.start, opened.recording.discard
	}
	if opened.session, err = opener.Open(ctx, spec); err != nil {
		return opened, fmt.Errorf("open agent of kind %s: %w", kind, err)
	}
	return opened, nil
}
