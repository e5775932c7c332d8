package agent

import "testing"

func TestRefusesFurtherCalls(t *testing.T) {
	t.Parallel()
	tests := []struct {
		words string
		want  bool
	}{
		{words: "Do not phone me any more.", want: true},
		{words: "Please, don’t ever call me again!", want: true},
		{words: "Take me off your list, please.", want: true},
		{words: "Rufen Sie mich bitte an.", want: false},
		{words: "Bitte rufen Sie mich nie wieder an.", want: true},
		{words: "Ne m’appelez plus, s'il vous plaît.", want: true},
		{words: "Por favor, no me llamen más.", want: true},
		{words: "Non chiamatemi più.", want: true},
		{words: "Não me ligue mais, por favor.", want: true},
		{words: "Bel me niet meer.", want: true},
		{words: "Proszę więcej nie dzwonić.", want: true},
		{words: "Už mi nevolejte.", want: true},
		{words: "Ring mig inte igen.", want: true},
		{words: "Ring ikke til mig mere.", want: true},
		{words: "Älkää soittako enää.", want: true},
		{words: "Call me again tomorrow.", want: false},
		{words: "I cannot talk now, can you call back later?", want: false},
		{words: "I am not interested.", want: false},
		{words: "", want: false},
	}
	for _, test := range tests {
		if got := RefusesFurtherCalls(test.words); got != test.want {
			t.Errorf("RefusesFurtherCalls(%q) = %v, want %v", test.words, got, test.want)
		}
	}
}

// TestRefusesFurtherCalls_KnowsTheLanguagesOfTheDisclosure fails if a language is added to the
// disclosures alone.
func TestRefusesFurtherCalls_KnowsTheLanguagesOfTheDisclosure(t *testing.T) {
	t.Parallel()
	for language := range disclosures() {
		phrases := refusals()[language]
		if len(phrases) == 0 {
			t.Errorf("phrases of %q = none, want some", language)
		}
		for _, phrase := range phrases {
			if !RefusesFurtherCalls(phrase) {
				t.Errorf("RefusesFurtherCalls(%q) = false, want true", phrase)
			}
		}
	}
}
