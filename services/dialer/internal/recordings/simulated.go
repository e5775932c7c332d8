package recordings

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/media"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// simulatedInterval is the time between two searches for ended calls of the simulated carrier.
	simulatedInterval = time.Second
	// maxSimulated is the maximum number of calls that are recorded after one search, and
	// simulatedAge the time after the end of a call for which the searches find it.
	maxSimulated, simulatedAge = 50, 2 * time.Minute
	frameTime, frameBytes      = 20 * time.Millisecond, Rate / 50
	// timePerCharacter is how long the synthesised voice needs for one character of a turn.
	timePerCharacter = 60 * time.Millisecond
)

// Simulator records the calls of the simulated carrier. This carrier transports text and no audio,
// so the simulator synthesises the audio after the call: three beeps, which mark the recording as
// simulated, and a humming voice for each turn of the transcript. The recording begins when the
// call was answered and has the length of the talk. A call without turns is not recorded. From the
// file in the spool on, the recording is stored as that of a SIP call.
type Simulator struct {
	recorder *Recorder
	// testOnly is true if only the calls of test workspaces are simulated.
	testOnly      bool
	person, agent voice
	// recordedSince contains, for each workspace that records its calls, the time of the round before
	// the simulator first read that. Calls that were answered earlier are not recorded.
	recordedSince map[uuid.UUID]time.Time
	lastRound     time.Time // by the clock of the database
}

// NewSimulator returns a simulator that stores its recordings with the recorder. If testOnly is
// true, it records only the calls of test workspaces. The caller must call Run.
func NewSimulator(recorder *Recorder, testOnly bool) *Simulator {
	return &Simulator{recorder: recorder, testOnly: testOnly, person: newVoice(130), agent: newVoice(210)}
}

// Run records ended calls until ctx ends.
func (s *Simulator) Run(ctx context.Context) error {
	ticker := time.NewTicker(simulatedInterval)
	defer ticker.Stop()
	for {
		if err := s.Round(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "simulated calls not recorded", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Round records the calls that have ended since the last round.
func (s *Simulator) Round(ctx context.Context) error {
	workspaces, now, err := s.recorder.rows.RecordedWorkspaces(ctx, s.testOnly)
	if err != nil {
		return err
	}
	if s.lastRound.IsZero() {
		s.lastRound = now
	}
	since := make(map[uuid.UUID]time.Time, len(workspaces))
	for _, id := range workspaces {
		since[id] = s.lastRound
		if known, ok := s.recordedSince[id]; ok {
			since[id] = known
		}
	}
	s.recordedSince, s.lastRound = since, now
	if len(workspaces) == 0 {
		return nil
	}
	talks, err := s.recorder.rows.UnrecordedTalks(ctx, workspaces, s.testOnly, simulatedAge, maxSimulated)
	for _, talk := range talks {
		if talk.AnsweredAt.Before(since[talk.WorkspaceID]) {
			continue
		}
		fault := s.record(ctx, talk)
		if errors.Is(fault, store.ErrRefused) || errors.Is(fault, os.ErrExist) {
			continue // another process records the call, or the person was erased
		}
		err = errors.Join(err, fault)
	}
	return err
}

func (s *Simulator) record(ctx context.Context, talk store.Talk) error {
	tape, err := s.recorder.begin(ctx, talk.WorkspaceID, talk.CallID, s.recorder.rows.BeginEnded)
	if err != nil {
		return err
	}
	defer tape.Close()
	marker := beeps()
	for frame := range int(talk.EndedAt.Sub(talk.AnsweredAt) / frameTime) {
		at := talk.AnsweredAt.Add(time.Duration(frame) * frameTime)
		person, agentSide := silence, silence
		if frame < len(marker)/frameBytes {
			person = marker[frame*frameBytes : (frame+1)*frameBytes]
			agentSide = person
		} else if role, speaks := speaker(talk.Turns, at); speaks && role == agent.RoleAgent {
			agentSide = s.agent.frame(frame)
		} else if speaks {
			person = s.person.frame(frame)
		}
		tape.Tick(person, agentSide)
		if (frame+1)%50 == 0 { // more than 10 s of audio do not fit into the buffer
			if err := tape.writeBuffer(); err != nil {
				return err
			}
		}
	}
	return nil
}

// speaker returns the role that speaks at a time: that of the last turn that began before it, until
// the text of the turn is spoken.
func speaker(turns []agent.Turn, at time.Time) (role string, speaks bool) {
	for _, turn := range turns {
		if turn.At.After(at) {
			continue
		}
		role = turn.Role
		speaks = at.Before(turn.At.Add(time.Duration(utf8.RuneCountInString(turn.Text)) * timePerCharacter))
	}
	return role, speaks
}

// silence is a frame of 20 ms.
var silence = func() []byte {
	frame := make([]byte, frameBytes)
	for i := range frame {
		frame[i] = media.Silence
	}
	return frame
}()

// voice is one second of a humming voice with four syllables, which can be repeated without a gap.
type voice []byte

func newVoice(hertz float64) voice {
	sound := make(voice, Rate)
	for i := range sound {
		t := float64(i) / Rate
		syllable := math.Abs(math.Sin(4 * math.Pi * t))
		wave := 0.0
		for harmonic := 1.0; harmonic <= 5; harmonic++ {
			wave += math.Sin(2*math.Pi*hertz*harmonic*t) / harmonic
		}
		sound[i] = media.FromLinear(int16(9000 * syllable * wave))
	}
	return sound
}

func (v voice) frame(number int) []byte {
	at := number * frameBytes % len(v)
	return v[at : at+frameBytes]
}

// beeps returns three beeps of 100 ms with pauses of 100 ms.
func beeps() []byte {
	sound := make([]byte, Rate*6/10)
	for i := range sound {
		sound[i] = media.Silence
		if i/(Rate/10)%2 == 0 {
			sound[i] = media.FromLinear(int16(8000 * math.Sin(2*math.Pi*1000*float64(i)/Rate)))
		}
	}
	return sound
}
