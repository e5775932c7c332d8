package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is the kind of a fault. A fault affects a process or a link.
type Kind string

// A process can be killed or stopped. A link is the connection of a client to a server, named
// "client>server". A blackout kills all processes.
const (
	Kill     Kind = "kill"  // SIGKILL; the local stack starts the process again
	Pause    Kind = "pause" // SIGSTOP, then SIGCONT
	Choke    Kind = "choke" // SIGSTOP, then SIGKILL
	Cut      Kind = "cut"   // closes the port and all connections of the link
	Deaf     Kind = "deaf"  // drops all data to the server, while connections stay open
	Mute     Kind = "mute"  // drops all data from the server, which still executes the requests
	Slow     Kind = "slow"  // delays responses
	Tear     Kind = "tear"  // closes connections in the middle of a response
	Blackout Kind = "blackout"
)

const everything = "everything"

// onProcess and onLink return the kinds of faults of a process and of a link, in the order of the
// report.
func onProcess() []Kind { return []Kind{Kill, Pause, Choke} }
func onLink() []Kind    { return []Kind{Cut, Deaf, Mute, Slow, Tear} }

// Fault is one fault, with its start in the run and its duration.
type Fault struct {
	At, For time.Duration
	Kind    Kind
	Target  string
	// Replica selects one of the processes of a service. For Slow, Amount is the delay in
	// milliseconds. For Tear, Amount is the number of bytes after which a connection closes.
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

// Field describes which targets can fail, and how often.
type Field struct {
	Processes, Links []string
	// Replicated lists the services that run with the number of replicas in Replicas.
	Replicated []string
	Replicas   int
	// Kinds lists the permitted kinds. Nil means all.
	Kinds []Kind
	// Gap is the mean time between two faults. AtOnce limits the number of concurrent faults.
	Gap    time.Duration
	AtOnce int
	// Blackouts is the time between two blackouts. 0 means none.
	Blackouts time.Duration
}

// The shortest pause of a process is longer than the 2 s for which a compliance check is valid.
// Most pauses are longer than a dialer's lease of 5 s. The pauses thus test both limits.
const (
	leastPause, mostPause = 2200 * time.Millisecond, 9 * time.Second
	storm, calm           = 20 * time.Second, 5 * time.Second
	// recoveryTime is the time after a kill in which the plan has no further fault for that
	// process.
	recoveryTime = 3 * time.Second
)

// Plan returns the faults ordered by their start. The result depends only on seed, length and
// field. No fault lasts beyond length, and no target has two faults at the same time.
func Plan(seed uint64, length time.Duration, field Field) (plan []Fault) {
	rng := rand.New(rand.NewPCG(seed, 5))
	var deck []Fault
	blackout := field.Blackouts / 2
	for at := field.Gap; ; at += time.Duration((0.3 + 1.4*rng.Float64()) * float64(field.Gap)) {
		if field.Blackouts > 0 && at >= blackout {
			at = quietTime(plan, at)
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
		under := slices.DeleteFunc(slices.Clone(plan), func(f Fault) bool { return f.nextFaultTime() <= at })
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

// quietTime returns the time when every fault of the plan is over, but not before earliest.
func quietTime(plan []Fault, earliest time.Duration) time.Duration {
	for _, f := range plan {
		earliest = max(earliest, f.nextFaultTime())
	}
	return earliest
}

// nextFaultTime returns the earliest time at which the target of the fault can have another fault.
func (f Fault) nextFaultTime() time.Duration {
	if f.Kind == Kill || f.Kind == Choke || f.Kind == Blackout {
		return f.At + f.For + recoveryTime
	}
	return f.At + f.For
}

// deck returns one fault for each possible pair of kind and target, in random order.
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

func fingerprint(plan []Fault) string {
	sum := fnv.New32a()
	for _, f := range plan {
		fmt.Fprintln(sum, f.At, f)
	}
	return fmt.Sprintf("%08x", sum.Sum32())
}
