package agent

import "strings"

// RefusesFurtherCalls reports whether the words of a person plainly ask not to be called again. It knows the
// languages of the disclosure. It covers a model that does not call the tool opt_out.
func RefusesFurtherCalls(words string) bool {
	text := strings.ToLower(strings.NewReplacer("’", "'", ",", "", "-", " ").Replace(words))
	text = strings.Join(strings.Fields(text), " ")
	for _, phrases := range refusals() {
		for _, phrase := range phrases {
			if strings.Contains(text, phrase) {
				return true
			}
		}
	}
	return false
}

// refusals returns the phrases by language, in lower case, without commas and hyphens.
func refusals() map[string][]string {
	return map[string][]string{
		"en": {
			"stop calling", "stop phoning", "never call", "don't call me again", "do not call me again", "don't ever call",
			"do not ever call", "don't call me any more", "do not call me any more", "don't call me anymore",
			"do not call me anymore", "don't phone me again", "do not phone me again", "don't phone me any more",
			"do not phone me any more", "don't call here again", "do not call here again", "don't call this number",
			"do not call this number", "don't want to be called again", "not want you to call me again",
			"don't want you to call me again", "don't want any more calls", "not want any more calls", "no more calls",
			"take me off your list", "take me off the list", "off your call list", "remove me from your list",
			"remove me from the list", "take my number off", "remove my number", "delete my number",
		},
		"de": {
			"rufen sie mich nicht mehr an", "rufen sie nicht mehr an", "rufen sie hier nicht mehr an",
			"ruf mich nicht mehr an", "nie wieder an", "nie mehr an", "nicht mehr anrufen", "nicht wieder anrufen",
			"nicht mehr angerufen werden", "keine anrufe mehr", "keine weiteren anrufe", "hören sie auf anzurufen",
			"hören sie auf mich anzurufen", "von ihrer liste", "von der liste", "aus ihrer liste",
			"löschen sie meine nummer", "meine nummer löschen",
		},
		"fr": {
			"ne m'appelez plus", "n'appelez plus", "ne me rappelez plus", "ne m'appelle plus", "ne plus m'appeler",
			"ne me téléphonez plus", "arrêtez de m'appeler", "arrêtez d'appeler", "cessez de m'appeler",
			"plus être appelé", "plus d'appels", "retirez moi de votre liste", "supprimez mon numéro", "effacez mon numéro",
		},
		"es": {
			"no me llame más", "no me llamen más", "no me llames más", "no llame más", "no llamen más",
			"no me vuelva a llamar", "no me vuelvan a llamar", "no vuelva a llamar", "no vuelvan a llamar",
			"deje de llamar", "dejen de llamar", "nunca más me llame", "no quiero más llamadas",
			"quíteme de su lista", "quítenme de su lista", "bórreme de su lista", "borre mi número", "borren mi número",
		},
		"it": {
			"non mi chiami più", "non mi chiamate più", "non chiamatemi più", "non mi chiamare più", "non chiamate più",
			"non mi richiami più", "non richiamatemi", "smetta di chiamar", "smettete di chiamar", "basta chiamate",
			"mi tolga dalla lista", "toglietemi dalla", "cancellatemi dalla", "cancelli il mio numero",
		},
		"pt": {
			"não me ligue mais", "não me liguem mais", "não ligue mais", "não liguem mais", "não me telefone mais",
			"não me telefonem mais", "não volte a ligar", "não voltem a ligar", "não me volte a ligar",
			"não me voltem a ligar", "pare de ligar", "parem de ligar", "pare de me ligar", "parem de me ligar",
			"não me chame mais", "retire me da lista", "tire me da lista", "apague o meu número", "tire meu número",
		},
		"nl": {
			"bel me niet meer", "bel mij niet meer", "belt u mij niet meer", "niet meer bellen", "nooit meer bellen",
			"bel me nooit meer", "bel mij nooit meer", "niet meer gebeld worden", "stop met bellen",
			"hou op met bellen", "van de lijst", "van uw lijst", "verwijder mijn nummer",
		},
		"pl": {
			"nie dzwońcie więcej", "nie dzwoń więcej", "więcej nie dzwoni", "nie dzwonić więcej",
			"więcej do mnie nie dzwoni", "nie dzwoń do mnie", "nie dzwońcie do mnie", "proszę do mnie nie dzwonić",
			"proszę nie dzwonić", "przestańcie dzwonić", "proszę przestać dzwonić", "usunąć mnie z listy",
			"usuńcie mój numer", "usunąć mój numer",
		},
		"cs": {
			"už mi nevolejte", "nevolejte mi už", "víckrát mi nevolejte", "už nevolejte", "nevolejte mi víckrát",
			"nikdy mi nevolejte", "přestaňte mi volat", "přestaňte volat", "nechci další hovory",
			"vymažte mě ze seznamu", "smažte moje číslo", "vymažte moje číslo",
		},
		"sv": {
			"ring mig inte mer", "ring inte mer", "ring mig inte igen", "ring inte igen", "ring inte hit igen",
			"ring aldrig", "ring mig aldrig", "sluta ring", "inga fler samtal", "ta bort mig från", "ta bort mitt nummer",
		},
		"da": {
			"ring ikke mere", "ring ikke til mig", "ring ikke igen", "ring aldrig", "stop med at ringe",
			"hold op med at ringe", "ikke flere opkald", "fjern mig fra", "slet mit nummer", "fjern mit nummer",
		},
		"fi": {
			"älkää soittako enää", "älä soita enää", "älkää enää soittako", "älä enää soita", "älkää soittako minulle",
			"älä soita minulle", "lopettakaa soitt", "en halua enää puheluita", "poistakaa minut", "poistakaa numeroni",
		},
	}
}
