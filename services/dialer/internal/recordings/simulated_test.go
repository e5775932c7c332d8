package recordings_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/media"
	"ringfence.dev/services/dialer/internal/recordings"
)

// recordCalls makes the workspace record its calls.
func (r *fixture) recordCalls() {
	r.t.Helper()
	r.exec(`INSERT INTO workspaces (workspace_id, version, status, api_enabled, max_live_calls, calls_per_second,
		destinations, recordings) VALUES ($1, 1, 'active', true, 1, 1, '{+1}', true)`, r.workspace)
}

// talk ends a call after 3 s. The person speaks for 0.6 s in second 1, the agent in second 2.
func (r *fixture) talk(id uuid.UUID) {
	r.t.Helper()
	r.exec(`UPDATE calls SET status = 'completed', answered_at = now(), ended_at = now() + interval '3 s',
		turns = json_build_array(
			json_build_object('role', 'person', 'text', 'Ten chars.', 'at', now() + interval '1 s'),
			json_build_object('role', 'agent', 'text', 'Ten chars.', 'at', now() + interval '2 s'))
		WHERE call_id = $1`, id)
}

func TestSimulator_StoresARecordingOfTheTalk(t *testing.T) {
	r := newFixture(t)
	r.recordCalls()
	rec := r.recorder(r.spool)
	simulator := recordings.NewSimulator(rec, false)
	round := func() {
		t.Helper()
		if err := simulator.Round(t.Context()); err != nil {
			t.Fatalf("Round: %v", err)
		}
		r.mustRound(rec)
	}
	round() // the simulator reads that the workspace records its calls
	id := r.call()
	round()
	if got := r.state(id); got != "gone" {
		t.Errorf("state during the call = %s, want no recording", got)
	}
	r.talk(id)
	round()
	round()
	if got := r.state(id); got != "stored" {
		t.Fatalf("state after the call = %s, want stored", got)
	}
	if got := len(r.publishedKeys(id)); got != 1 {
		t.Errorf("published keys = %d, want 1", got)
	}
	var file []byte
	for _, object := range r.s3.Objects() {
		file = object.Body
	}
	const length = 3 * recordings.BytesPerSecond
	if !bytes.HasPrefix(file, recordings.Header(length)) || len(file) != recordings.HeaderBytes+length {
		t.Fatalf("the file of %d bytes is not a recording of 3 s", len(file))
	}
	isLoud := func(channel int, from time.Duration) bool {
		const window = 300 * time.Millisecond
		first := recordings.HeaderBytes + 2*int(from*recordings.Rate/time.Second)
		last := first + 2*int(window*recordings.Rate/time.Second)
		for i := first + channel; i < last; i += 2 {
			if media.Linear(file[i]) > 4000 {
				return true
			}
		}
		return false
	}
	for _, row := range []struct {
		name          string
		from          time.Duration
		person, agent bool
	}{
		{name: "the beeps", from: 0, person: true, agent: true},
		{name: "the turn of the person", from: 1100 * time.Millisecond, person: true},
		{name: "silence after the turn", from: 1650 * time.Millisecond},
		{name: "the turn of the agent", from: 2100 * time.Millisecond, agent: true},
	} {
		if got := isLoud(0, row.from); got != row.person {
			t.Errorf("%s: the person is heard = %t, want %t", row.name, got, row.person)
		}
		if got := isLoud(1, row.from); got != row.agent {
			t.Errorf("%s: the agent is heard = %t, want %t", row.name, got, row.agent)
		}
	}
}

func TestSimulator_RecordsOnlyItsOwnCalls(t *testing.T) {
	r := newFixture(t)
	rec := r.recorder(r.spool)
	simulator, ofTests := recordings.NewSimulator(rec, false), recordings.NewSimulator(rec, true)
	before, silent, erased, elsewhere := r.call(), r.call(), r.call(), r.call()
	r.talk(before)
	for _, s := range []*recordings.Simulator{simulator, ofTests} {
		if err := s.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.recordCalls()
	r.hangUp(silent)
	r.talk(erased)
	r.talk(elsewhere)
	r.exec(`UPDATE calls SET erased = true WHERE call_id = $1`, erased)
	if err := ofTests.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.state(elsewhere); got != "gone" {
		t.Errorf("a live workspace with a simulator of test workspaces: state = %s, want no recording", got)
	}
	if err := simulator.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]uuid.UUID{"answered before the workspace recorded": before, "silent": silent,
		"erased": erased} {
		if got := r.state(id); got != "gone" {
			t.Errorf("%s: state = %s, want no recording", name, got)
		}
	}
	if got := r.state(elsewhere); got == "gone" {
		t.Error("the call of the workspace was not recorded")
	}
}
