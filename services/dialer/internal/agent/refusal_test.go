package agent

import "testing"

// refusalTest is a test of one text. The texts imitate spoken language and are not copied from
// refusalPhrases.
type refusalTest struct {
	language string
	name     string
	words    string
	want     bool
}

func TestRefusal_IsRecognisedInPlainSentences(t *testing.T) {
	t.Parallel()
	for _, test := range refusalTests() {
		t.Run(test.language+"/"+test.name, func(t *testing.T) {
			t.Parallel()
			if got := RefusesFurtherCalls(test.words); got != test.want {
				t.Errorf("RefusesFurtherCalls(%q) = %v, want %v", test.words, got, test.want)
			}
		})
	}
}

func TestRefusal_EveryDisclosureLanguageHasPhrases(t *testing.T) {
	t.Parallel()
	refused, allowed := map[string]int{}, map[string]int{}
	for _, test := range refusalTests() {
		if test.want {
			refused[test.language]++
		} else {
			allowed[test.language]++
		}
	}
	for language := range disclosures() {
		if _, ok := refusals()[language]; !ok {
			t.Errorf("phrases of %q = none, want some", language)
		}
		least := 2
		if language == "en" || language == "de" {
			least = 6
		}
		if refused[language] < least {
			t.Errorf("refusals of %q under test = %d, want at least %d", language, refused[language], least)
		}
		if allowed[language] < least {
			t.Errorf("other sentences of %q under test = %d, want at least %d", language, allowed[language], least)
		}
	}
}

// A later sentence must not cancel a refusal that contains a word such as "again" or "stop". A
// complaint that mentions a time must not cancel a refusal.
func TestRefusal_CanBeCanceledByALaterSentence(t *testing.T) {
	t.Parallel()
	limited := map[string]int{}
	for _, test := range limitedRefusalTests() {
		if !test.want {
			limited[test.language]++
		}
		t.Run(test.language+"/"+test.words, func(t *testing.T) {
			t.Parallel()
			if got := RefusesFurtherCalls(test.words); got != test.want {
				t.Errorf("RefusesFurtherCalls(%q) = %v, want %v", test.words, got, test.want)
			}
		})
	}
	for language := range disclosures() {
		if limited[language] < 2 {
			t.Errorf("limited refusals of %q under test = %d, want at least 2", language, limited[language])
		}
	}
}

func limitedRefusalTests() []refusalTest {
	return []refusalTest{
		{language: "en", words: "Don't call me. Call me tomorrow."},
		{language: "en", words: "Don't call me. You can call me back after six."},
		{language: "en", words: "Please don't call me! Can you try again on Monday?"},
		{language: "en", words: "Don't call me. Not today."},
		{language: "en", words: "Don't call me. Not right now."},
		{language: "en", words: "Don't call me. Not before noon."},
		{language: "en", words: "Don't call me. No, not today. Goodbye."},
		{language: "en", words: "I don't want you to call me. I'm driving. Call me later."},
		{language: "en", words: "Don't call me now. Call me tomorrow."},
		{language: "en", words: "Never call me again. Call me tomorrow and you will hear from my lawyer.", want: true},
		{language: "en", words: "Stop calling me. I'm at work.", want: true},
		{language: "en", words: "Don't call me. Call me tomorrow. No, take me off your list.", want: true},
		{language: "en", words: "Don't call me. Call me again and I will call the police.", want: true},
		{language: "en", words: "Don't call me. Have a nice evening.", want: true},
		{language: "en", words: "Don't call me. Good night.", want: true},
		{language: "en", words: "Don't call me. Not today, not ever.", want: true},
		{language: "en", words: "Don't call me. I told you before.", want: true},
		{language: "en", words: "Don't call me. Call my lawyer.", want: true},
		{language: "en", words: "Don't call me. Send me an email.", want: true},
		{language: "en", words: "Don't call me. I was sleeping, and now I am awake at this hour.", want: true},
		{language: "en", words: "Don't call me, please. I'm at work.", want: true},
		{language: "en", words: "Don't call me. You called me today.", want: true},
		{language: "en", words: "Don't call me. Third call today.", want: true},
		{language: "en", words: "Don't call me. Not interested today.", want: true},
		{language: "en", words: "Don't call me. You ruined my meeting.", want: true},
		{language: "en", words: "Don't call me. Call the office.", want: true},
		{language: "en", words: "Don't call me. Don't call me tomorrow.", want: true},
		{language: "en", words: "Don't call me, not today, not ever.", want: true},
		{language: "en", words: "Don't call me. Not today. Not ever.", want: true},
		{language: "en", words: "Don't call me. Not today. Not tomorrow. Never.", want: true},
		{language: "en", words: "Don't call me. Not today or any other day.", want: true},
		{language: "en", words: "Don't call me. It is always a bad time.", want: true},
		{language: "en", words: "Don't call me. No use.", want: true},
		{language: "en", words: "Don't call me. Call me back later? No thanks.", want: true},
		{language: "en", words: "Don't call me. Call me tomorrow and you will hear from my lawyer.", want: true},
		{language: "en", words: "Don't call me. Call me later if you dare.", want: true},

		{language: "de", words: "Rufen Sie mich nicht an. Rufen Sie mich morgen an."},
		{language: "de", words: "Rufen Sie mich nicht an. Nicht heute."},
		{language: "de", words: "Rufen Sie mich nicht an. Nicht jetzt."},
		{language: "de", words: "Rufen Sie mich bitte nicht an. Können Sie mich morgen zurückrufen?"},
		{language: "de", words: "Rufen Sie mich nicht an. Ich bin in der Arbeit, rufen Sie lieber am Montag an."},
		{language: "de", words: "Rufen Sie mich nie wieder an. Nicht heute, nicht morgen.", want: true},
		{language: "de", words: "Rufen Sie mich nicht an. Schönen Abend noch.", want: true},
		{language: "de", words: "Rufen Sie mich nicht an. Können Sie mich heute aus Ihrer Liste nehmen?", want: true},
		{language: "de", words: "Rufen Sie mich nicht an! Das dritte Mal heute!", want: true},
		{language: "de", words: "Rufen Sie mich nicht an. Schon dreimal heute.", want: true},
		{language: "de", words: "Rufen Sie mich nicht an. Ich bin in der Arbeit.", want: true},
		{language: "de", words: "Rufen Sie mich nicht an, nicht heute, niemals.", want: true},
		{language: "de", words: "Rufen Sie mich nicht an. Nicht heute. Nie.", want: true},

		{language: "fr", words: "Ne m'appelez pas. Appelez-moi demain."},
		{language: "fr", words: "Ne m'appelez pas. Pas maintenant."},
		{language: "fr", words: "Ne m'appelez plus. Appelez-moi demain et je porte plainte.", want: true},
		{language: "fr", words: "Ne m'appelez pas. Bonne soirée.", want: true},
		{language: "fr", words: "Ne m'appelez pas. Troisième fois aujourd'hui.", want: true},
		{language: "fr", words: "Ne m'appelez pas, ni aujourd'hui, ni jamais.", want: true},
		{language: "fr", words: "Ne m'appelez pas. Encore vous ce soir !", want: true},
		{language: "es", words: "No me llame. Llámeme mañana."},
		{language: "es", words: "No me llame. Ahora no."},
		{language: "es", words: "No me llame. Hasta luego.", want: true},
		{language: "es", words: "No me llame. Tercera vez hoy.", want: true},
		{language: "es", words: "No me llame, ni hoy, ni nunca.", want: true},
		{language: "es", words: "No me llame. Estoy en el trabajo.", want: true},
		{language: "it", words: "Non mi chiami. Mi richiami domani."},
		{language: "it", words: "Non mi chiami. Non oggi."},
		{language: "it", words: "Non mi chiami. Buona serata.", want: true},
		{language: "it", words: "Non chiamatemi. Terza volta oggi.", want: true},
		{language: "it", words: "Non mi chiami, non oggi, mai più.", want: true},
		{language: "it", words: "Non mi chiami. Ancora voi stasera.", want: true},
		{language: "pt", words: "Não me ligue. Ligue-me amanhã."},
		{language: "pt", words: "Não me ligue. Hoje não."},
		{language: "pt", words: "Não me ligue. Até logo.", want: true},
		{language: "pt", words: "Não me ligue. Terceira vez hoje.", want: true},
		{language: "pt", words: "Não me ligue, nem hoje, nem nunca.", want: true},
		{language: "pt", words: "Não me ligue. Estou no trabalho.", want: true},
		{language: "nl", words: "Bel me niet. Bel me morgen."},
		{language: "nl", words: "Bel me niet. Kunt u mij maandag terugbellen?"},
		{language: "nl", words: "Bel me niet. Fijne avond nog.", want: true},
		{language: "nl", words: "Bel me niet. Derde keer vandaag.", want: true},
		{language: "nl", words: "Bel me niet, niet vandaag, nooit.", want: true},
		{language: "nl", words: "Bel me niet. Ik ben op kantoor.", want: true},
		{language: "pl", words: "Nie dzwońcie do mnie. Zadzwońcie jutro."},
		{language: "pl", words: "Proszę nie dzwonić. Nie teraz."},
		{language: "pl", words: "Nie dzwońcie do mnie. Miłego wieczoru.", want: true},
		{language: "pl", words: "Nie dzwońcie do mnie. Trzeci raz dzisiaj.", want: true},
		{language: "pl", words: "Nie dzwońcie do mnie, ani dziś, ani nigdy.", want: true},
		{language: "pl", words: "Nie dzwońcie do mnie. Jestem w pracy.", want: true},
		{language: "cs", words: "Nevolejte mi. Zavolejte mi zítra."},
		{language: "cs", words: "Nevolejte mi. Dnes ne."},
		{language: "cs", words: "Nevolejte mi. Hezký večer.", want: true},
		{language: "cs", words: "Nevolejte mi. Dnes už potřetí.", want: true},
		{language: "cs", words: "Nevolejte mi, ani dnes, ani nikdy.", want: true},
		{language: "cs", words: "Nevolejte mi. Jsem v práci.", want: true},
		{language: "sv", words: "Ring mig inte. Ring mig i morgon."},
		{language: "sv", words: "Ring mig inte. Inte nu."},
		{language: "sv", words: "Ring mig inte. Ring mig igen, så polisanmäler jag er.", want: true},
		{language: "sv", words: "Ring mig inte. Tredje gången i dag.", want: true},
		{language: "sv", words: "Ring mig inte, inte i dag, aldrig.", want: true},
		{language: "sv", words: "Ring mig inte. Jag är på jobbet.", want: true},
		{language: "da", words: "Ring ikke til mig. Ring til mig i morgen."},
		{language: "da", words: "Ring ikke til mig. Ikke i dag."},
		{language: "da", words: "Ring ikke til mig. God aften.", want: true},
		{language: "da", words: "Ring ikke til mig. Tredje gang i dag.", want: true},
		{language: "da", words: "Ring ikke til mig, ikke i dag, aldrig.", want: true},
		{language: "da", words: "Ring ikke til mig. Jeg er på arbejde.", want: true},
		{language: "fi", words: "Älkää soittako minulle. Soittakaa huomenna."},
		{language: "fi", words: "Älkää soittako minulle. Ei tänään."},
		{language: "fi", words: "Älkää soittako minulle. Hyvää illanjatkoa.", want: true},
		{language: "fi", words: "Älkää soittako minulle. Kolmas kerta tänään.", want: true},
		{language: "fi", words: "Älkää soittako minulle, ei tänään, ei koskaan.", want: true},
		{language: "fi", words: "Älkää soittako minulle. Olen töissä.", want: true},
	}
}

func refusalTests() []refusalTest {
	return []refusalTest{
		{language: "en", name: "refusal: plain sentence", words: "Don't call me.", want: true},
		{language: "en", name: "refusal: polite sentence", words: "Please do not call me.", want: true},
		{language: "en", name: "refusal: filler in the middle", words: "Don't, please, call me again.", want: true},
		{language: "en", name: "refusal: typographic apostrophe", words: "Please, don’t ever call me again!", want: true},
		{language: "en", name: "refusal: no apostrophe", words: "dont call me again", want: true},
		{language: "en", name: "refusal: contains 'phone'", words: "Do not phone me any more.", want: true},
		{language: "en", name: "refusal: no object", words: "No thanks. Don't call again.", want: true},
		{
			language: "en",
			name:     "refusal: contains 'never'",
			words:    "Look, I'm not interested. Never call me again!",
			want:     true,
		},
		{language: "en", name: "refusal: emphatic sentence", words: "Don't you ever call me again!", want: true},
		{language: "en", name: "refusal: contains 'contact'", words: "Do not contact me again, thank you.", want: true},
		{language: "en", name: "refusal: stop calling", words: "Stop calling me and leave me alone.", want: true},
		{language: "en", name: "refusal: quit calling", words: "Quit calling us, please!", want: true},
		{
			language: "en",
			name:     "refusal: entry in the do not call list",
			words:    "Put me on your do not call list.",
			want:     true,
		},
		{
			language: "en",
			name:     "refusal: entry in the do-not-call list",
			words:    "Please put me on the do-not-call list, okay!",
			want:     true,
		},
		{
			language: "en",
			name:     "refusal: removal from the list",
			words:    "Could you please take me off of your list?",
			want:     true,
		},
		{
			language: "en",
			name:     "refusal: removal from the list, passive",
			words:    "I want to be taken off your list.",
			want:     true,
		},
		{language: "en", name: "refusal: removal from the list now", words: "Take us off your list right now!", want: true},
		{language: "en", name: "refusal: calls not wanted", words: "I don't want you calling me.", want: true},
		{language: "en", name: "refusal: no more calls", words: "No more calls, please.", want: true},
		{language: "en", name: "refusal: deletion of the number", words: "Delete my number, please.", want: true},
		{
			language: "en",
			name:     "refusal: mention of an earlier request",
			words:    "I've told you before, don't call this number again.",
			want:     true,
		},

		{language: "en", name: "no refusal: sentence about the past", words: "You never called me back.", want: false},
		{language: "en", name: "no refusal: habit of the speaker", words: "I never call anyone after six.", want: false},
		{language: "en", name: "no refusal: only before noon", words: "Don't call me again before noon.", want: false},
		{
			language: "en",
			name:     "no refusal: only before noon, time first",
			words:    "Before noon, please don't call me.",
			want:     false,
		},
		{language: "en", name: "no refusal: only until a time", words: "Do not call me again until Monday.", want: false},
		{
			language: "en",
			name:     "no refusal: only until a day, after a pause",
			words:    "Don't call me again... until Monday, I mean.",
			want:     false,
		},
		{language: "en", name: "no refusal: full stop in a.m.", words: "Until 9 a.m. don't call me.", want: false},
		{
			language: "en",
			name:     "no refusal: this number, only before noon",
			words:    "Do not call this number before noon.",
			want:     false,
		},
		{
			language: "en",
			name:     "no refusal: only this number",
			words:    "Don't call me on this number, use my mobile.",
			want:     false,
		},
		{language: "en", name: "no refusal: only at work", words: "Please don't call me at work.", want: false},
		{language: "en", name: "no refusal: only now", words: "Don't call me now.", want: false},
		{language: "en", name: "no refusal: only tomorrow", words: "Don't call me tomorrow, I'm away.", want: false},
		{language: "en", name: "no refusal: contains 'just'", words: "Don't just call me, come by.", want: false},
		{language: "en", name: "no refusal: name of the speaker", words: "Don't call me Bob.", want: false},
		{
			language: "en",
			name:     "no refusal: appointments of today",
			words:    "I have no more calls today, four o'clock works.",
			want:     false,
		},
		{language: "en", name: "no refusal: request not to stop", words: "Please don't stop calling.", want: false},
		{language: "en", name: "no refusal: question about the past", words: "Why did you stop calling me?", want: false},
		{language: "en", name: "no refusal: repeated question", words: "Remove my number? No, keep it.", want: false},
		{
			language: "en",
			name:     "no refusal: words of another person",
			words:    "My wife? She said, don't call me again.",
			want:     false,
		},
		{
			language: "en",
			name:     "no refusal: only under a condition",
			words:    "If it's about money, don't call me.",
			want:     false,
		},
		{language: "en", name: "no refusal: speaker will call", words: "Don't call us, we'll call you.", want: false},
		{
			language: "en",
			name:     "no refusal: request for a callback",
			words:    "I cannot talk now, can you call back later?",
			want:     false,
		},
		{language: "en", name: "no refusal: not interested", words: "I am not interested.", want: false},
		{language: "en", name: "no refusal: empty text", words: "", want: false},

		{language: "de", name: "refusal: polite sentence", words: "Rufen Sie mich bitte nicht mehr an.", want: true},
		{language: "de", name: "refusal: plain sentence", words: "Rufen Sie mich nicht an!", want: true},
		{language: "de", name: "refusal: contains 'never'", words: "Bitte rufen Sie mich nie wieder an.", want: true},
		{
			language: "de",
			name:     "refusal: contains 'here'",
			words:    "Nein danke, rufen Sie hier bitte nicht mehr an.",
			want:     true,
		},
		{language: "de", name: "refusal: infinitive", words: "Bitte nicht mehr anrufen.", want: true},
		{language: "de", name: "refusal: calls not wanted", words: "Ich möchte nicht mehr angerufen werden.", want: true},
		{language: "de", name: "refusal: stop calling", words: "Hören Sie endlich auf, mich anzurufen!", want: true},
		{
			language: "de",
			name:     "refusal: removal from the list",
			words:    "Streichen Sie mich bitte von Ihrer Liste.",
			want:     true,
		},
		{
			language: "de",
			name:     "refusal: question that is a request",
			words:    "Können Sie mich bitte aus Ihrer Liste löschen?",
			want:     true,
		},
		{
			language: "de",
			name:     "refusal: deletion of the number",
			words:    "Löschen Sie bitte meine Nummer und auf Wiederhören.",
			want:     true,
		},

		{language: "de", name: "no refusal: request for a call", words: "Rufen Sie mich bitte an.", want: false},
		{
			language: "de",
			name:     "no refusal: only before a time",
			words:    "Rufen Sie mich bitte nicht mehr vor zehn Uhr an.",
			want:     false,
		},
		{language: "de", name: "no refusal: only today", words: "Heute rufen Sie mich bitte nicht mehr an.", want: false},
		{
			language: "de",
			name:     "no refusal: only until a time",
			words:    "Rufen Sie mich nicht mehr an, bis ich zurück bin.",
			want:     false,
		},
		{language: "de", name: "no refusal: only at work", words: "Rufen Sie mich nicht im Büro an.", want: false},
		{language: "de", name: "no refusal: contains 'immediately'", words: "Rufen Sie mich nicht sofort an.", want: false},
		{language: "de", name: "no refusal: numbered list", words: "Ich nehme Nummer drei von der Liste.", want: false},
		{language: "de", name: "no refusal: speaker cannot call", words: "Ich kann heute nicht mehr anrufen.", want: false},
		{language: "de", name: "no refusal: speaker will not call", words: "Da rufe ich nie wieder an.", want: false},
		{
			language: "de",
			name:     "no refusal: speaker will call",
			words:    "Rufen Sie mich nicht an, ich rufe Sie an.",
			want:     false,
		},
		{
			language: "de",
			name:     "no refusal: sentence about the past",
			words:    "Sie haben mich nie wieder angerufen.",
			want:     false,
		},

		{language: "fr", name: "refusal: plain sentence", words: "Ne m’appelez plus, s'il vous plaît.", want: true},
		{language: "fr", name: "refusal: contains 'contact'", words: "Ne me contactez plus jamais !", want: true},
		{language: "fr", name: "refusal: filler in the middle", words: "Arrêtez, s'il vous plaît, de m'appeler.", want: true},
		{language: "fr", name: "refusal: removal from the list", words: "Enlevez-moi de votre liste.", want: true},
		{
			language: "fr",
			name:     "no refusal: contains 'later'",
			words:    "Ne m'appelez pas plus tard que vingt heures.",
			want:     false,
		},
		{language: "fr", name: "no refusal: only before a time", words: "Ne m'appelez plus avant lundi, merci.", want: false},
		{language: "fr", name: "no refusal: number of calls", words: "Il y a plus d'appels le lundi.", want: false},
		{language: "fr", name: "no refusal: sentence about the past", words: "Vous ne m'avez jamais rappelé.", want: false},

		{language: "es", name: "refusal: plain sentence", words: "Por favor, no me llamen más.", want: true},
		{language: "es", name: "refusal: contains 'never'", words: "¡No me llame nunca más!", want: true},
		{language: "es", name: "refusal: no accents", words: "Le digo algo: gracias. No me llame por favor mas.", want: true},
		{language: "es", name: "refusal: calls not wanted", words: "No quiero que me llamen.", want: true},
		{
			language: "es",
			name:     "refusal: removal from the list",
			words:    "¿Puede quitarme de su lista, por favor?",
			want:     true,
		},
		{language: "es", name: "no refusal: contains 'later'", words: "No me llame más tarde.", want: false},
		{language: "es", name: "no refusal: contains 'later than'", words: "No me llame más tarde de las ocho.", want: false},
		{language: "es", name: "no refusal: sentence about the past", words: "Usted nunca me llamó.", want: false},
		{language: "es", name: "no refusal: only until a time", words: "Hasta el lunes, no me llame más.", want: false},

		{language: "it", name: "refusal: plain sentence", words: "Non chiamatemi più.", want: true},
		{language: "it", name: "refusal: filler in the middle", words: "Non mi chiami, per favore, più.", want: true},
		{language: "it", name: "refusal: no object", words: "Non chiami più, grazie.", want: true},
		{language: "it", name: "refusal: removal from the list", words: "Mi tolga dalla vostra lista!", want: true},
		{language: "it", name: "no refusal: contains 'later'", words: "Non mi chiami più tardi.", want: false},
		{language: "it", name: "no refusal: sentence about the past", words: "Non mi avete mai richiamato.", want: false},
		{language: "it", name: "no refusal: only before a time", words: "Prima di mezzogiorno, non mi chiami.", want: false},

		{language: "pt", name: "refusal: plain sentence", words: "Não me ligue mais, por favor.", want: true},
		{language: "pt", name: "refusal: Brazilian form", words: "Não me liga mais!", want: true},
		{language: "pt", name: "refusal: filler in the middle", words: "Pare, por favor, de me ligar.", want: true},
		{language: "pt", name: "refusal: removal from the list", words: "Tire-me da sua lista.", want: true},
		{language: "pt", name: "no refusal: contains 'later'", words: "Não me ligue mais tarde.", want: false},
		{language: "pt", name: "no refusal: sentence about the past", words: "Vocês nunca me ligaram.", want: false},
		{language: "pt", name: "no refusal: only until a time", words: "Não me ligue até segunda-feira.", want: false},

		{language: "nl", name: "refusal: plain sentence", words: "Bel me niet meer.", want: true},
		{language: "nl", name: "refusal: filler in the middle", words: "Bel me alsjeblieft niet meer!", want: true},
		{language: "nl", name: "refusal: formal form", words: "Belt u me niet meer, dank u wel.", want: true},
		{language: "nl", name: "refusal: removal from the list", words: "Haal mij van de lijst.", want: true},
		{language: "nl", name: "no refusal: item of a list", words: "Ik neem nummer drie van de lijst.", want: false},
		{language: "nl", name: "no refusal: item of a list, short", words: "Nummer drie van de lijst.", want: false},
		{language: "nl", name: "no refusal: only before a time", words: "Bel me niet voor twaalf uur.", want: false},
		{language: "nl", name: "no refusal: sentence about the past", words: "U heeft mij nooit meer gebeld.", want: false},

		{language: "pl", name: "refusal: polite sentence", words: "Proszę więcej nie dzwonić.", want: true},
		{language: "pl", name: "refusal: plain sentence", words: "Nie dzwońcie już do mnie!", want: true},
		{language: "pl", name: "refusal: filler in the middle", words: "Nie dzwońcie, proszę, do mnie więcej.", want: true},
		{language: "pl", name: "refusal: removal from the list", words: "Proszę mnie usunąć z listy.", want: true},
		{language: "pl", name: "no refusal: only before noon", words: "Proszę nie dzwonić przed południem.", want: false},
		{language: "pl", name: "no refusal: sentence about the past", words: "Nigdy do mnie nie dzwoniliście.", want: false},
		{language: "pl", name: "no refusal: only tomorrow", words: "Jutro proszę do mnie nie dzwonić.", want: false},

		{language: "cs", name: "refusal: plain sentence", words: "Už mi nevolejte.", want: true},
		{language: "cs", name: "refusal: filler in the middle", words: "Nevolejte mi, prosím, víckrát!", want: true},
		{language: "cs", name: "refusal: calls not wanted", words: "Nechci, abyste mi volali.", want: true},
		{language: "cs", name: "refusal: removal from the list", words: "Vymažte mě ze seznamu.", want: true},
		{language: "cs", name: "no refusal: only before a time", words: "Nevolejte mi před polednem.", want: false},
		{language: "cs", name: "no refusal: sentence about the past", words: "Nikdy jste mi nevolali.", want: false},
		{language: "cs", name: "no refusal: only today", words: "Dnes už mi nevolejte.", want: false},

		{language: "sv", name: "refusal: contains 'again'", words: "Ring mig inte igen.", want: true},
		{language: "sv", name: "refusal: filler in the middle", words: "Ring mig, snälla, inte mer!", want: true},
		{language: "sv", name: "refusal: stop calling", words: "Sluta ringa mig.", want: true},
		{language: "sv", name: "refusal: removal from the list", words: "Kan ni ta bort mig från er lista?", want: true},
		{language: "sv", name: "no refusal: only until a time", words: "Ring inte igen förrän på måndag.", want: false},
		{language: "sv", name: "no refusal: removal from a meeting", words: "Ta bort mig från mötet.", want: false},
		{language: "sv", name: "no refusal: sentence about the past", words: "Ni ringde mig aldrig.", want: false},

		{language: "da", name: "refusal: plain sentence", words: "Ring ikke til mig mere.", want: true},
		{language: "da", name: "refusal: filler in the middle", words: "Ring venligst ikke til mig igen!", want: true},
		{language: "da", name: "refusal: stop calling", words: "Hold op med at ringe til mig.", want: true},
		{language: "da", name: "refusal: removal from the list", words: "Fjern mig fra jeres liste, tak.", want: true},
		{language: "da", name: "refusal: deletion of the number", words: "Slet mit nummer.", want: true},
		{language: "da", name: "no refusal: only before a time", words: "Ring ikke til mig før klokken tolv.", want: false},
		{language: "da", name: "no refusal: sentence about the past", words: "I ringede aldrig til mig.", want: false},
		{language: "da", name: "no refusal: only tomorrow", words: "Ring ikke til mig i morgen.", want: false},

		{language: "fi", name: "refusal: plain sentence", words: "Älkää soittako enää.", want: true},
		{language: "fi", name: "refusal: contains 'to me'", words: "Älkää soittako minulle!", want: true},
		{language: "fi", name: "refusal: filler in the middle", words: "Älkää, kiitos, soittako minulle enää.", want: true},
		{language: "fi", name: "refusal: removal from the list", words: "Poistakaa minut listaltanne.", want: true},
		{
			language: "fi",
			name:     "no refusal: only before a time",
			words:    "Älkää soittako minulle ennen kello kymmentä.",
			want:     false,
		},
		{language: "fi", name: "no refusal: sentence about the past", words: "Ette soittaneet minulle koskaan.", want: false},
		{language: "fi", name: "no refusal: only at work", words: "Älkää soittako minulle töihin.", want: false},
	}
}
