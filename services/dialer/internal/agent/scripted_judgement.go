package agent

import (
	"regexp"
	"strings"
	"time"
)

// Judge returns the judgement of a conversation of the scripted agent. Times in the summary are in
// zone, the person's time zone.
func (c *Conversation) Judge(endedAt time.Time, zone *time.Location) Judgement {
	var heard []string
	for _, turn := range c.turns {
		if turn.Role == RolePerson {
			heard = append(heard, turn.Text)
		}
	}
	text := strings.Join(heard, " ")
	switch {
	case len(heard) == 0:
		return Judgement{Outcome: OutcomeNoConversation, Reached: ReachedAbandoned}
	case isVoicemail(text):
		return Judgement{Outcome: OutcomeNoConversation, Reached: ReachedVoicemail}
	}
	summary := Summary{
		BusinessType: capture(runs, text), CustomerName: capture(named, text),
		KeyInterests: list(interest, text), KeyObjections: list(worry, text),
	}
	switch tomorrowAtTen := nextDayAtTen(endedAt, zone); {
	case asksNeverAgain(text):
		summary.Outcome, summary.Confidence, summary.NextAction = OutcomeOptedOut, 0.98, "Do not call this person again."
	case asksCallBack(text):
		summary.Outcome, summary.Confidence, summary.NextAction = OutcomeCallbackRequested, 0.95, "Call back at the agreed time."
		summary.ScheduledFor = &tomorrowAtTen
	case len(summary.KeyInterests) > 0:
		summary.Outcome, summary.Confidence, summary.NextAction = OutcomeInterested, 0.9, "Send the details and follow up "+
			"the next day."
		summary.ScheduledFor = &tomorrowAtTen
	default:
		summary.Outcome, summary.Confidence, summary.NextAction = OutcomeUnknown, 0.3, "Read the transcript."
	}
	return Judgement{Outcome: summary.Outcome, Reached: ReachedHuman, Summary: &summary}
}

var (
	named    = regexp.MustCompile(`this is ([A-Z][\pL'-]+(?: [A-Z][\pL'-]+)*)`)
	runs     = regexp.MustCompile(`We run an? ([^.,]+)`)
	interest = regexp.MustCompile(`interested in ([^.]+)`)
	worry    = regexp.MustCompile(`worried about ([^.]+)`)
)

func capture(pattern *regexp.Regexp, text string) *string {
	if found := pattern.FindStringSubmatch(text); found != nil {
		return &found[1]
	}
	return nil
}

func list(pattern *regexp.Regexp, text string) []string {
	items := []string{}
	for _, found := range pattern.FindAllStringSubmatch(text, -1) {
		items = append(items, strings.Split(found[1], " and ")...)
	}
	return items
}

func nextDayAtTen(after time.Time, zone *time.Location) string {
	year, month, day := after.In(zone).Date()
	return time.Date(year, month, day+1, 10, 0, 0, 0, zone).Format(TimeLayout)
}
