package agent

import "testing"

// Each language has the same kinds of sentences: refusals, canceled refusals, limits of time or
// place, and sentences that only resemble a refusal. No native speaker has reviewed them.
func TestRefusesFurtherCalls_DetectsRefusalsInEachLanguage(t *testing.T) {
	t.Parallel()
	tests := []refusalTest{
		{language: "fr", words: "Ne m'appelez pas. Appelez-moi demain."},
		{language: "fr", words: "Ne m'appelez pas.", want: true},
		{language: "fr", words: "Ne m'appelez plus. Appelez-moi demain.", want: true},
		{language: "fr", words: "Ne m'appelez pas maintenant."},
		{language: "fr", words: "Je vous rappelle."},
		{language: "fr", words: "Ne m'appelez pas avant midi."},
		{language: "fr", words: "Vous ne m'appelez jamais !"},
		{language: "fr", words: "Arrêtez de m'appeler, c'est insupportable.", want: true},
		{language: "fr", words: "Je ne veux plus être dérangé.", want: true},
		{language: "fr", words: "Lâchez-moi, ne rappelez plus.", want: true},
		{language: "fr", words: "Ne me rappelez plus jamais, s'il vous plaît.", want: true},
		{language: "fr", words: "Ne m'appelle plus.", want: true},
		{language: "fr", words: "Ne m'appelez pas au bureau."},
		{language: "fr", words: "Ne m'appelez pas Madame.", want: true},

		{language: "es", words: "No me llame. Llámeme mañana."},
		{language: "es", words: "No me llame.", want: true},
		{language: "es", words: "No me llame más. Llámeme mañana.", want: true},
		{language: "es", words: "No me llame ahora."},
		{language: "es", words: "No me llames Pepe."},
		{language: "es", words: "No me llamo Juan."},
		{language: "es", words: "Dejen de llamar, por favor.", want: true},
		{language: "es", words: "No vuelvan a llamarme nunca.", want: true},
		{language: "es", words: "Quíteme de su lista.", want: true},
		{language: "es", words: "No me llamen antes de las diez."},
		{language: "es", words: "Ya no me llame.", want: true},

		{language: "it", words: "Non mi chiami. Mi chiami domani."},
		{language: "it", words: "Non mi chiami.", want: true},
		{language: "it", words: "Non mi chiami più. Mi chiami domani.", want: true},
		{language: "it", words: "Non mi chiamo Marco."},
		{language: "it", words: "Non mi chiami adesso."},
		{language: "it", words: "Smettetela di chiamarmi.", want: true},
		{language: "it", words: "Non voglio più essere disturbato.", want: true},
		{language: "it", words: "Basta con queste telefonate!", want: true},
		{language: "it", words: "Non mi chiami in ufficio."},

		{language: "pt", words: "Não me ligue. Ligue-me amanhã."},
		{language: "pt", words: "Não me ligue.", want: true},
		{language: "pt", words: "Não me ligue mais. Ligue-me amanhã.", want: true},
		{language: "pt", words: "Não me ligue agora."},
		{language: "pt", words: "Pare de me ligar!", want: true},
		{language: "pt", words: "Parem de ligar para cá.", want: true},
		{language: "pt", words: "Não me liguem à noite."},
		{language: "pt", words: "Não quero receber mais chamadas.", want: true},
		{language: "pt", words: "Não me ligo a isso."},

		{language: "nl", words: "Bel me niet. Bel me morgen."},
		{language: "nl", words: "Bel me niet.", want: true},
		{language: "nl", words: "Bel me niet meer. Bel me morgen.", want: true},
		{language: "nl", words: "Bel me nu niet."},
		{language: "nl", words: "Stop met bellen!", want: true},
		{language: "nl", words: "Ik wil niet meer gebeld worden.", want: true},
		{language: "nl", words: "Bel mij nooit meer op.", want: true},
		{language: "nl", words: "Bel me niet op mijn werk."},
		{language: "nl", words: "Wilt u mij niet meer bellen?", want: true},

		{language: "pl", words: "Proszę do mnie nie dzwonić. Proszę zadzwonić jutro."},
		{language: "pl", words: "Proszę do mnie nie dzwonić.", want: true},
		{language: "pl", words: "Proszę do mnie więcej nie dzwonić. Proszę zadzwonić jutro.", want: true},
		{language: "pl", words: "Nie dzwoń teraz."},
		{language: "pl", words: "Przestańcie do mnie dzwonić!", want: true},
		{language: "pl", words: "Nie życzę sobie telefonów.", want: true},
		{language: "pl", words: "Proszę nie dzwonić do pracy."},
		{language: "pl", words: "Czy może pan do mnie nie dzwonić?", want: true},
		{language: "pl", words: "Czy może pan do mnie nie dzwonić jutro?"},
		{language: "pl", words: "Czy może pani do mnie więcej nie dzwonić?", want: true},

		{language: "cs", words: "Nevolejte mi. Zavolejte mi zítra."},
		{language: "cs", words: "Nevolejte mi.", want: true},
		{language: "cs", words: "Už mi nevolejte. Zavolejte mi zítra.", want: true},
		{language: "cs", words: "Teď mi nevolejte."},
		{language: "cs", words: "Přestaňte mi volat!", want: true},
		{language: "cs", words: "Nevolejte mi do práce."},
		{language: "cs", words: "Nechci žádné telefonáty.", want: true},

		{language: "sv", words: "Ring mig inte. Ring mig i morgon."},
		{language: "sv", words: "Ring mig inte.", want: true},
		{language: "sv", words: "Ring mig inte igen. Ring mig i morgon.", want: true},
		{language: "sv", words: "Ring mig inte nu."},
		{language: "sv", words: "Sluta ringa!", want: true},
		{language: "sv", words: "Jag vill inte bli uppringd.", want: true},
		{language: "sv", words: "Ring inte hit mer.", want: true},
		{language: "sv", words: "Ring mig inte på jobbet."},

		{language: "da", words: "Ring ikke til mig. Ring til mig i morgen."},
		{language: "da", words: "Ring ikke til mig.", want: true},
		{language: "da", words: "Ring ikke til mig igen. Ring til mig i morgen.", want: true},
		{language: "da", words: "Ring ikke til mig nu."},
		{language: "da", words: "Stop med at ringe!", want: true},
		{language: "da", words: "Jeg vil ikke ringes op.", want: true},
		{language: "da", words: "Ring ikke på arbejdet."},
		{language: "da", words: "I skal ikke ringe til mig mere.", want: true},

		{language: "fi", words: "Älkää soittako minulle. Soittakaa huomenna."},
		{language: "fi", words: "Älkää soittako minulle.", want: true},
		{language: "fi", words: "Älkää soittako enää. Soittakaa huomenna.", want: true},
		{language: "fi", words: "Älkää soittako nyt."},
		{language: "fi", words: "Lopettakaa soittelu!", want: true},
		{language: "fi", words: "En halua puheluita.", want: true},
		{language: "fi", words: "Älä soita minulle enää.", want: true},
		{language: "fi", words: "Poistakaa numeroni listalta.", want: true},

		{language: "en", words: "Don't call me. Call me tomorrow."},
		{language: "en", words: "Don't call me.", want: true},
		{language: "en", words: "Don't call me again. Call me tomorrow.", want: true},
		{language: "en", words: "Don't call me Bob."},
		{language: "en", words: "Stop calling.", want: true},
		{language: "en", words: "Don't call me at work."},
		{language: "en", words: "Lose my number.", want: true},
		{language: "en", words: "Never call this number.", want: true},
		{language: "en", words: "I don't want you calling me ever again.", want: true},
		{language: "en", words: "Please don't hang up."},

		{language: "de", words: "Rufen Sie mich nicht an. Rufen Sie mich morgen an."},
		{language: "de", words: "Rufen Sie mich nicht an.", want: true},
		{language: "de", words: "Rufen Sie mich nie wieder an. Rufen Sie mich morgen an.", want: true},
		{language: "de", words: "Rufen Sie mich jetzt nicht an."},
		{language: "de", words: "Hören Sie auf, mich anzurufen!", want: true},
		{language: "de", words: "Ich möchte keine Anrufe mehr.", want: true},
		{language: "de", words: "Rufen Sie mich bitte nicht im Büro an."},
		{language: "de", words: "Lassen Sie mich in Ruhe."},
		{language: "de", words: "Bitte nicht mehr anrufen.", want: true},
		{language: "de", words: "Sie brauchen mich nicht mehr anzurufen.", want: true},
		{language: "de", words: "Sie müssen mich heute nicht mehr anrufen."},
		{language: "de", words: "Streichen Sie mich von der Liste.", want: true},
		{language: "de", words: "Löschen Sie meine Nummer!", want: true},
	}
	for _, test := range tests {
		t.Run(test.language+"/"+test.words, func(t *testing.T) {
			t.Parallel()
			if got := RefusesFurtherCalls(test.words); got != test.want {
				t.Errorf("RefusesFurtherCalls(%q) = %v, want %v", test.words, got, test.want)
			}
		})
	}
}
