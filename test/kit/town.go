package kit

// Town is a script with a bit of everything, by the last two digits: 90 busy, 91 rings until it is cancelled, 92 no such number, 93 the trunk is in trouble, 94 not a word, 95 picks up while it is
// cancelled, 96 declined, 97 picks up and hangs up, 98 picks up after 3 s, 99 what elsewhere says. The even ones from 50 to 88 wait until the other side hangs up, all others do so after 2 s.
func Town(elsewhere string) string {
	var patient []int
	for n := 50; n < 90; n += 2 {
		patient = append(patient, n)
	}
	return Script(`([0-9][0-9])`, []string{"number"},
		When(900, "number", []int{90}, Says("180 Ringing")+`<pause milliseconds="200"/>`+Refuses("486 Busy Here")),
		When(910, "number", []int{91}, Says("180 Ringing")+Canceled()),
		When(920, "number", []int{92}, Refuses("404 Not Found")),
		When(930, "number", []int{93}, Says("100 Trying")+Refuses("503 Service Unavailable")),
		When(940, "number", []int{94}, `<pause milliseconds="40000"/>`),
		When(950, "number", []int{95}, Says("180 Ringing")+CanceledTooLate()),
		When(960, "number", []int{96}, Says("180 Ringing")+`<pause milliseconds="200"/>`+Refuses("603 Decline")),
		When(970, "number", []int{97}, RingsFor(972, 200, Answers()+SaysBye(974, 50))),
		When(980, "number", []int{98}, RingsFor(982, 3000, Answers()+HearsBye())),
		When(990, "number", []int{99}, elsewhere),
		When(100, "number", patient, RingsFor(102, 300, Answers()+HearsBye())),
		RingsFor(104, 300, Answers()+SaysBye(106, 2000)), Over())
}

// Elsewhere is what the first trunk says to calls that the second takes.
func Elsewhere() string { return Says("100 Trying") + Refuses("503 Service Unavailable") }

// Here is what the second says to them.
func Here() string { return RingsFor(992, 300, Answers()+SaysBye(994, 1500)) }
