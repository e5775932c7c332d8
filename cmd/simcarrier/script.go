package main

import (
	"hash/fnv"
	"strings"
	"time"
)

// step is one action of the simulated person, at a time after the previous step.
type step struct {
	after time.Duration
	// ignoresScale is true if the time scale does not apply to the time before this step.
	ignoresScale bool
	kind         string
	text         string
	cause        string
	by           string
}

// waitForDialer is how long the simulated person waits for the dialer to hang up or to answer.
const waitForDialer = 2 * time.Minute

// FailingText is a text on which the dialer's scripted agent fails. The simulated person says it if
// the number ends in 99.
const FailingText = "[an unbearable noise on the line]"

// outboundScript returns the steps for a called number, by its last two digits
// (docs/test-numbers.md). callID is the seed for random values.
func outboundScript(to, callID string) []step {
	seed := seedOf(callID)
	ring := step{after: 50 * time.Millisecond, kind: KindRinging}
	answer := step{after: 800*time.Millisecond + time.Duration(seed%400)*time.Millisecond, kind: KindAnswer}
	final := func(after time.Duration, cause, by string) step {
		return step{after: after, kind: KindHangup, cause: cause, by: by}
	}
	switch digits := lastTwo(to); digits {
	case "90":
		return []step{final(300*time.Millisecond, "user_busy", "callee")}
	case "91":
		return []step{ring, final(5*time.Second, "no_answer", "carrier")}
	case "92":
		return []step{final(200*time.Millisecond, "unallocated_number", "carrier")}
	case "93":
		return []step{final(200*time.Millisecond, "normal_temporary_failure", "carrier")}
	case "98":
		answer.after = 20 * time.Second
		return append([]step{ring, answer}, talkScript("00", seed)...)
	default:
		return append([]step{ring, answer}, talkScript(digits, seed)...)
	}
}

// inboundScript returns the steps of a caller after the dialer has answered, by the last digits of
// the caller's number. A caller whose call is not answered hangs up.
func inboundScript(from, callID string) []step {
	return talkScript(lastTwo(from), seedOf(callID))
}

func talkScript(digits string, seed uint32) []step {
	say := func(after time.Duration, text string) step {
		return step{after: after, kind: KindUtterance, text: text}
	}
	bye := func(after time.Duration) step {
		return step{after: after, kind: KindHangup, cause: "normal_clearing", by: "person"}
	}
	who := person(seed)
	switch digits {
	case "94":
		return []step{
			say(400*time.Millisecond, "You have reached the voicemail of "+who.name+". Please leave a message after the tone."),
			bye(3 * time.Second),
		}
	case "95":
		return []step{bye(100 * time.Millisecond)}
	case "96":
		return []step{
			say(400*time.Millisecond, "Hello?"),
			say(800*time.Millisecond, "Never call me again. Take me off your list."),
			bye(1200 * time.Millisecond),
		}
	case "97":
		return []step{
			say(400*time.Millisecond, "Hello, this is "+who.name+"."),
			say(900*time.Millisecond, "I am busy now. Please call me back tomorrow at ten."),
			bye(1200 * time.Millisecond),
		}
	case "99":
		return []step{
			say(400*time.Millisecond, "Hello, this is "+who.name+"."),
			say(900*time.Millisecond, FailingText),
			{after: waitForDialer, ignoresScale: true, kind: KindHangup, cause: "normal_clearing", by: "person"},
		}
	}
	talk := 2*time.Second + time.Duration(seed%4000)*time.Millisecond
	return []step{
		say(300*time.Millisecond, "Hello, this is "+who.name+"."),
		say(talk/4, "We run "+who.business+". I am interested in "+who.interests+"."),
		say(talk/4, "I am worried about "+who.worry+"."),
		say(talk/8, "Send me the details, please. Goodbye."),
		bye(talk - 300*time.Millisecond - talk/4 - talk/4 - talk/8),
	}
}

type character struct{ name, business, interests, worry string }

func person(seed uint32) character {
	people := [...]character{
		{"Ana Reyes", "a dental practice", "online booking and appointment reminders", "the time it takes to set up"},
		{"Jonas Weber", "a bicycle workshop", "same-day quotes and fewer missed calls", "the monthly price"},
		{"Priya Nair", "a flower shop", "weekend ordering and delivery updates", "losing the personal touch"},
		{"Marek Novak", "a small hotel", "group bookings and late check-in", "the contract length"},
	}
	return people[seed%uint32(len(people))]
}

func lastTwo(number string) string {
	digits := strings.TrimPrefix(number, "+")
	return digits[max(len(digits)-2, 0):]
}

func seedOf(callID string) uint32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(callID))
	return sum.Sum32()
}
