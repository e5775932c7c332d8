package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is what is done to a process or a link.
type Kind string

// Processes are killed and stopped; links, named "asker>peer", are hurt in five ways; a blackout is everybody's.
const (
	Kill     Kind = "kill"  // SIGKILL; its keeper starts it again
	Pause    Kind = "pause" // SIGSTOP, and SIGCONT in the end
	Choke    Kind = "choke" // SIGSTOP, and SIGKILL in the end
	Cut      Kind = "cut"   // refuses, and has closed everything
	Deaf     Kind = "deaf"  // nothing reaches the peer
	Mute     Kind = "mute"  // the peer hears and does; its answers never come
	Slow     Kind = "slow"  // answers come late
	Tear     Kind = "tear"  // connections break in the middle of an answer
	Blackout Kind = "blackout"
)

// everything is the target of a blackout.
const everything = "everything"

// onProcess and onLink are the kinds in the order in which a report lists them.
func onProcess() []Kind { return []Kind{Kill, Pause, Choke} }
func onLink() []Kind    { return []Kind{Cut, Deaf, Mute, Slow, Tear} }

// Fault is one wound: at an instant of the run, for so long.
type Fault struct {
	At, For time.Duration
	Kind    Kind
	Target  string
	// Replica picks one of a service's processes; Amount is the milliseconds of Slow and the bytes of Tear.
	Replica, Amount int
}

func (f Fault) String() string {
	target := f.Target
	if f.Replica > 0 {
		target = fmt.Sprintf("%s·%d", target, f.Replica+1)
	}
	switch f.Kind {
	case Kill, Blackout:
		return fmt.Sprintf("%s %s", f.Kind, target)
	case Slow:
		return fmt.Sprintf("slow %s by %d ms for %.1f s", target, f.Amount, f.For.Seconds())
	case Tear:
		return fmt.Sprintf("tear %s every %d bytes for %.1f s", target, f.Amount, f.For.Seconds())
	}
	return fmt.Sprintf("%s %s for %.1f s", f.Kind, target, f.For.Seconds())
}

// Field is what can be hurt, and how hard.
type Field struct {
	Processes, Links []string
	// Replicated are the processes of which there are Replicas.
	Replicated []string
	Replicas   int
	// Kinds that may happen; nil: all.
	Kinds []Kind
	// Gap is the mean time between two faults, AtOnce how many there are at a time.
	Gap    time.Duration
	AtOnce int
	// Blackouts: one in so long, none when it is zero.
	Blackouts time.Duration
}

// A pause is longer than a gate's answer is good for (2 s), mostly than the lease of a dialer (5 s); after a storm there is a calm.
const (
	leastPause, mostPause = 2200 * time.Millisecond, 9 * time.Second
	storm, calm           = 20 * time.Second, 5 * time.Second
	// recovers is how long a killed process is left alone.
	recovers = 3 * time.Second
)

// Plan is what will be done: a pure function of seed, length and field. Faults are in the order of their beginning, none lasts beyond length, and
// no two hurt the same target at once.
func Plan(seed uint64, length time.Duration, field Field) (plan []Fault) {
	rng := rand.New(rand.NewPCG(seed, 5))
	var deck []Fault
	blackout := field.Blackouts / 2
	for at := field.Gap; ; at += time.Duration((0.3 + 1.4*rng.Float64()) * float64(field.Gap)) {
		if field.Blackouts > 0 && at >= blackout {
			at = quiet(plan, at)
			deck = append([]Fault{{Kind: Blackout, Target: everything}}, deck...)
			blackout += field.Blackouts
		}
		if into := at % (storm + calm); into > storm {
			at += storm + calm - into
		}
		if at > length-leastPause {
			return plan
		}
		if len(deck) == 0 {
			deck = field.deck(rng)
		}
		under := slices.DeleteFunc(slices.Clone(plan), func(f Fault) bool { return f.over() <= at })
		next := slices.IndexFunc(deck, func(f Fault) bool {
			return !slices.ContainsFunc(under, func(g Fault) bool { return g.Target == f.Target || g.Target == everything })
		})
		if next < 0 || len(under) >= field.AtOnce {
			continue
		}
		f := deck[next]
		f.At, f.For = at, min(f.For, length-at)
		plan, deck = append(plan, f), slices.Delete(deck, next, next+1)
	}
}

// quiet is when every fault is over, or at when that is later.
func quiet(plan []Fault, at time.Duration) time.Duration {
	for _, f := range plan {
		at = max(at, f.over())
	}
	return at
}

// over is when the next may hurt the same target.
func (f Fault) over() time.Duration {
	if f.Kind == Kill || f.Kind == Choke || f.Kind == Blackout {
		return f.At + f.For + recovers
	}
	return f.At + f.For
}

// deck is one of each that can happen, shuffled: after a deck everything was hurt in some way.
func (field Field) deck(rng *rand.Rand) (deck []Fault) {
	may := func(kind Kind) bool { return field.Kinds == nil || slices.Contains(field.Kinds, kind) }
	seconds := func(least, most float64) time.Duration {
		return time.Duration((least + (most-least)*rng.Float64()) * float64(time.Second)).Round(100 * time.Millisecond)
	}
	for _, target := range field.Processes {
		for _, kind := range []Kind{Kill, Pause} {
			f := Fault{Kind: kind, Target: target}
			if kind == Pause {
				f.For = seconds(leastPause.Seconds(), mostPause.Seconds())
				if rng.IntN(4) == 0 {
					f.Kind = Choke
				}
			}
			if slices.Contains(field.Replicated, target) && field.Replicas > 1 {
				f.Replica = rng.IntN(field.Replicas)
			}
			if may(f.Kind) {
				deck = append(deck, f)
			}
		}
	}
	kinds := slices.DeleteFunc(onLink(), func(kind Kind) bool { return !may(kind) })
	for _, target := range field.Links {
		if len(kinds) == 0 {
			break
		}
		f := Fault{Kind: kinds[rng.IntN(len(kinds))], Target: target, For: seconds(1, 7)}
		switch f.Kind {
		case Slow:
			f.Amount = 50 + rng.IntN(450)
		case Tear:
			f.Amount = 100 + rng.IntN(8000)
		}
		deck = append(deck, f)
	}
	rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

// fingerprint names a plan: the same one has the same.
func fingerprint(plan []Fault) string {
	sum := fnv.New32a()
	for _, f := range plan {
		fmt.Fprintln(sum, f.At, f)
	}
	return fmt.Sprintf("%08x", sum.Sum32())
}
