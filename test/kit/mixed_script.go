package kit

// MixedScript returns a script for sipp. The behavior of the far end depends on the last two digits
// of the dialed number: 90 is busy, 91 rings until it is canceled, 92 does not exist, 93 returns a
// trunk error, 94 sends nothing, 95 answers despite a cancel, 96 declines, 97 answers and hangs up,
// 98 answers after 3 s, 99 executes steps99. The even numbers from 50 to 88 wait until the other
// side hangs up. All other numbers hang up after 2 s.
func MixedScript(steps99 string) string {
	var patient []int
	for n := 50; n < 90; n += 2 {
		patient = append(patient, n)
	}
	return Script(`([0-9][0-9])`, []string{"number"},
		When(900, "number", []int{90}, Respond("180 Ringing")+`<pause milliseconds="200"/>`+Reject("486 Busy Here")),
		When(910, "number", []int{91}, Respond("180 Ringing")+ExpectCancel()),
		When(920, "number", []int{92}, Reject("404 Not Found")),
		When(930, "number", []int{93}, Respond("100 Trying")+Reject("503 Service Unavailable")),
		When(940, "number", []int{94}, `<pause milliseconds="40000"/>`),
		When(950, "number", []int{95}, Respond("180 Ringing")+AnswerDespiteCancel()),
		When(960, "number", []int{96}, Respond("180 Ringing")+`<pause milliseconds="200"/>`+Reject("603 Decline")),
		When(970, "number", []int{97}, RingThen(972, 200, Answer()+HangUp(974, 50))),
		When(980, "number", []int{98}, RingThen(982, 3000, Answer()+ExpectBye())),
		When(990, "number", []int{99}, steps99),
		When(100, "number", patient, RingThen(102, 300, Answer()+ExpectBye())),
		RingThen(104, 300, Answer()+HangUp(106, 2000)), Over())
}

// OverflowScript returns a script that refuses every call. The first trunk uses this script, so
// that the second trunk accepts the calls.
func OverflowScript() string { return Respond("100 Trying") + Reject("503 Service Unavailable") }

// SecondTrunkScript returns the script of the second trunk for calls that the first trunk refuses.
func SecondTrunkScript() string { return RingThen(992, 300, Answer()+HangUp(994, 1500)) }
