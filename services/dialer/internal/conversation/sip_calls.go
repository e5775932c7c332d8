// Package talking gives calls over SIP trunks their audio and their conversation: it agrees with the far end on a stream, gets the agent ready while the phone rings,
// and lets the two talk. What it does not know are dialogs, and what becomes of the call.

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

// Store tells what a call's conversation is to be.
type Store interface {
	Order(ctx context.Context, callID uuid.UUID) (store.Order, error)
}

// Keys are what workspaces' own agents and models are reached with.
type Keys interface {
	Key(ctx context.Context, workspaceID, agentID uuid.UUID) (string, error)
}

// CallRecorder makes tapes of calls.
type CallRecorder interface {
	Begin(ctx context.Context, workspaceID, callID uuid.UUID) (*recordings.Tape, error)
}

// SIPCalls makes talks.
type SIPCalls struct {
	store   Store
	keys    Keys
	streams *media.Streams
	// address is what far ends are told to send audio to.
	address netip.Addr
	agents  map[string]agent.Opener
	// recorder is nil where there is nowhere to keep recordings.
	recorder CallRecorder
}

// NewSIPCalls makes talks whose audio far ends send to the address, with agents by their kind; recorder may be nil.
func NewSIPCalls(st Store, keys Keys, streams *media.Streams, address netip.Addr, agents map[string]agent.Opener, recorder CallRecorder) *SIPCalls {
	return &SIPCalls{store: st, keys: keys, streams: streams, address: address, agents: agents, recorder: recorder}
}

// Begin binds a port and describes it. Nothing is known of the conversation yet.
func (t *SIPCalls) Begin(_ context.Context, callID uuid.UUID, over trunks.Trunk) (sipcarrier.Talk, error) {
	made := &talk{talking: t, callID: callID, opened: make(chan struct{}), talked: make(chan struct{})}
	made.life, made.stop = context.WithCancel(context.Background())
	timeout := media.NoTimeout
	if over.MediaTimeoutSeconds > 0 {
		timeout = time.Duration(over.MediaTimeoutSeconds) * time.Second
	}
	stream, err := t.streams.Open(media.Leg{Source: made, Sink: made, TimedOut: made.timedOut, Timeout: timeout})
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	made.stream = stream
	if made.session, err = t.describe(stream.Port(), over); err == nil {
		made.offer, err = made.session.Offer(sdp.Both)
	}
	if err != nil {
		stream.Close()
		return nil, fmt.Errorf("describe a stream: %w", err)
	}
	return made, nil
}

func (t *SIPCalls) describe(port uint16, over trunks.Trunk) (*sdp.Session, error) {
	local := sdp.Local{Address: t.address, Port: port, Secrecy: sdp.Secrecy(over.SRTP)}
	for _, name := range over.Codecs {
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

// reached is an agent that could talk, how, and onto what; tape is nil for a call that is not recorded.
type reached struct {
	session agent.Session
	how     Settings
	tape    *taped
}

// open gets the agent of a call ready.
func (t *SIPCalls) open(ctx context.Context, callID uuid.UUID) (made reached, err error) {
	order, err := t.store.Order(ctx, callID)
	if err != nil {
		return made, err
	}
	settings, err := agent.ReadSettings(order.Settings)
	if err != nil {
		return made, err
	}
	kind := settings.Kind
	if kind == "" {
		kind = agent.Scripted
	}
	opener := t.agents[kind]
	if opener == nil {
		return made, fmt.Errorf("open agent of kind %s: %w", kind, errNoKind)
	}
	key, err := t.keys.Key(ctx, order.WorkspaceID, order.AgentID)
	if err != nil && !errors.Is(err, pg.ErrNotFound) {
		return made, err
	}
	zone := callstate.Zone(order.TimeZone, phone.Number(order.Person))
	spec := agent.Spec{
		CallID: callID, AgentID: order.AgentID, WorkspaceID: order.WorkspaceID, Settings: settings,
		Variables: order.Variables, Key: key, Zone: zone, Now: time.Now(),
	}
	made.how = Settings{Agent: settings, Longest: time.Duration(order.MaxCallSeconds) * time.Second, Zone: zone}
	if order.Recorded && t.recorder != nil {
		spec.Notice, spec.NoticeKnown = settings.NoticeText()
	}
	made.how.Disclosure, _ = agent.FirstWords(spec)
	if spec.Notice != "" {
		made.tape = &taped{recorder: t.recorder, workspaceID: order.WorkspaceID, callID: callID}
		made.how.Noticed, made.how.Objected = made.tape.begin, made.tape.discard
	}
	if made.session, err = opener.Open(ctx, spec); err != nil {
		return made, fmt.Errorf("open agent of kind %s: %w", kind, err)
	}
	return made, nil
}
