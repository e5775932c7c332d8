package agent

// phrases contains the phrases of one language. Each string is a regular expression in the spelling
// of normaliseText: lower case, without accents and apostrophes, with spaces instead of hyphens.
type phrases struct {
	clauses []string // the type refusal describes the meaning of these fields
	fillers []string
	links   []string
	limits  []string
	bare    []string
	notNow  []string // must not match a complaint, such as "third call today"
	wishes  []string // LIMIT in a pattern is a placeholder for the phrases in limits
}

// refusalPhrases returns the phrases by language. Fillers are removed everywhere, even between
// "not" and "call", so a filler must not change the meaning. "Just", "now" and "immediately" change
// the meaning, so they are not fillers.
func refusalPhrases() map[string]phrases {
	return map[string]phrases{
		"en": {
			clauses: []string{
				"(just )?(dont|do not|never|dont you ever|dont you dare)( ever)? (call|phone|ring|contact|telephone)" +
					" (me|us|here|this number|my number)( (again|back|any ?more|any longer|ever))*",
				"(dont|do not|never)( ever)? (call|phone|ring) (again|any ?more|back)",
				"((i want|i would like|id like|i need|you need|you have|can|could|would|will|im asking|i am asking)( you)?(" +
					" to)? )?" +
					"(just )?(stop|quit) (calling|phoning|ringing|contacting)( (me|us|here|this number|my number))?",
				"(can|could|would|will|im asking|i am asking) you (not (to )?call|never (to )?call) (me|us)( (again|any ?more))?",
				"(i|we) (dont|do not) (ever )?want (you to (call|phone|ring|contact) (me|us)|you calling (me|us)|" +
					"to be (called|phoned|contacted))( (again|any ?more|ever))*",
				"(i|we) (dont|do not) want (any (more |further )?|more |further )?(of )?(these |your )?(phone )?calls( from you)?" +
					"( any ?more)?",
				"no (more|further) (phone )?calls( from you)?",
				"((i want|i would like|id like|i need|you need|can|could|would|will)( you)?( to)? )?" +
					"(take|get|remove|delete|strike) (me|us|my number|our number|my name|this number) (off|from)( of)?" +
					" (your|the|this)( (call|calling|phone|contact|telephone))? (lists?|database|system|records)" +
					"( (right )?(now|away|today)| immediately)?",
				"((i want|i would like|id like) to be|i want you to|can you|could you|would you|will you)?( ?(please )?)" +
					"(put|place|add|placed|added) ((me|us|my number|this number) )?(on|to|onto) (your|the|a) do not call" +
					"( (list|register|registry))?",
				"(i want|i would like|id like) to be (taken off|removed from|deleted from)( of)? (your|the|this)( (call|" +
					"calling|phone))? list",
				"((can|could|would|will) you )?(delete|remove|erase|lose) (my|our) (phone |telephone )?number",
			},
			fillers: []string{
				"good night",
				"please", "okay", "ok", "well", "hey", "hello", "hi", "look", "listen", "really", "no thank you", "no thanks",
				"thank you", "thanks", "sorry", "sir", "maam", "madam", "kindly", "at all", "i said", "i mean", "u[hm]+",
				"(im|i am) not interested", "(told|asked|said|called)( you| this| that| me)* before",
				"good (morning|afternoon|evening)",
			},
			links: []string{"and", "or", "because", "but", "so", "otherwise"},
			limits: []string{
				"before", "until", "till?", "after", "at", "while", "when", "whenever", "during", "unless",
				"if", "instead", "except", "between", "yet", "morning", "afternoon", "evening", "noon", "night",
				"(mon|tues|wednes|thurs|fri|satur|sun)days?", "week", "weekend", "month", "use", "text",
				"email", "write", "(he|she|they) said", "on (this|that|my)", "(call|phone|ring) you",
				"later", "tomorrow", "today", "tonight", "for now", "office", "busy", "driving", "meeting",
				"not (right |just )?now", "at (work|home)",
			},
			notNow: []string{
				"not ((right |just )?now|today|tonight|this (morning|afternoon|evening|week)|at the moment)",
				`not before \w+( oclock)?`,
			},
			bare: []string{
				"(just )?(dont|do not) (call|phone|ring|contact|telephone) (me|us|here|this number|my number)",
				"(i|we) (dont|do not) want (you to (call|phone|ring|contact) (me|us)|you calling (me|us)|" +
					"to be (called|phoned|contacted))",
				"(i|we) (dont|do not) want (any )?(of )?(these |your )?(phone )?calls( from you)?",
				"(can|could|would|will) you not call (me|us)",
			},
			wishes: []string{
				"((just|maybe|then|instead|rather|you (can|may|could)|can you|could you|would you) )*" +
					"((call|phone|ring) ((me|us)( back)?|back|again)|try( (me|us))?( again)?) LIMIT.*",
			},
		},
		"de": {
			clauses: []string{
				"(rufen sie|ruft|rufe?) ((mich|uns|hier|bei (mir|uns)|(diese|meine) nummer) )?(doch )?" +
					"(nicht mehr|nie mehr|nie wieder|niemals wieder|niemals|nicht wieder|nicht noch ?mal|nicht noch einmal) an",
				"(rufen sie|ruft|ruf) (mich|uns|hier|diese nummer) nicht an",
				"((sie sollen|konnen sie|konnten sie|wurden sie) )?((mich|uns|hier|bei mir) )?" +
					"(nicht mehr|nie wieder|nie mehr|nicht wieder) anrufen",
				"(ich (will|mochte|wunsche)|wir (wollen|mochten)) ((von ihnen|hier) )?" +
					"(nicht mehr|nie wieder|nie mehr|nicht wieder|nicht) (von ihnen )?angerufen werden",
				"(ich (will|mochte|wunsche)|wir (wollen|mochten)) (nicht|nicht mehr) dass sie (mich|uns|hier)( noch ?mal|" +
					" wieder)? anrufen",
				"(ich (will|mochte|wunsche)|wir (wollen|mochten)) keine (weiteren )?anrufe( mehr)?( von ihnen)?( mehr)?",
				"keine weiteren anrufe( mehr)?|keine anrufe mehr",
				"(sie|ihr|du) (brauchen|braucht|brauchst|mussen|musst) (mich|uns|hier) " +
					"(nicht mehr|nie wieder|nie mehr|nicht wieder) (anzurufen|anrufen)",
				"(horen sie|hort|hor) (endlich )?auf (mich |hier )?(anzurufen|mit (den|diesen|ihren) anrufen)",
				"unterlassen sie (diese|die|ihre|weitere) anrufe",
				"(streichen|nehmen|loschen|entfernen) sie (mich|uns|meine (telefon)?nummer|meinen namen) (sofort )?(von|aus)" +
					" (ihrer|der|dieser) ((anruf|telefon|kontakt)?liste|kartei|datenbank)",
				"((konnen|konnten|wurden) sie )?(mich|meine (telefon)?nummer) (von|aus) (ihrer|der|dieser)" +
					" ((anruf|telefon|kontakt)?liste|kartei|datenbank) (streichen|nehmen|loschen|entfernen)",
				"(loschen|entfernen|streichen) sie (meine|unsere|diese) (telefon)?nummer",
				"((konnen|konnten|wurden) sie )?meine (telefon)?nummer (loschen|entfernen|streichen)",
				"setzen sie mich auf (ihre|die) (sperrliste|robinsonliste)",
			},
			fillers: []string{
				"bitte", "ja", "also", "okay", "ok", "nein danke", "vielen dank", "danke", "hallo", "wirklich", "uberhaupt",
				"gefalligst", "endlich", "ich sagte", "entschuldigung", "guten (tag|morgen|abend)",
			},
			links: []string{"und", "oder", "sonst", "weil", "denn", "aber"},
			limits: []string{
				"vor", "bevor", "bis", "nach", "nachdem", "erst", "abends?", "vormittags?", "nachmittags?",
				"mittags?", "nachts", "wochenende", "woche", "(mon|diens|donners|frei|sams|sonn)tags?",
				"mittwochs?", "wahrend", "wenn", "falls", "solange", "ausser", "sondern", "stattdessen",
				"lieber", "moment", "handy", "um", "uhr", "zwischen", "ab", "jetzt", "(er|sie) sagten?",
				"ich (rufe|melde)",
				"spater", "heute", "morgen", "ubermorgen", "momentan", "gerade", "arbeit", "buro",
			},
			notNow: []string{
				`nicht (heute|jetzt|gerade jetzt)|(heute|jetzt|gerade) nicht|nicht vor \w+ uhr`,
			},
			bare: []string{
				"(rufen sie|ruft|rufe?) (mich|uns|hier|diese nummer) nicht an",
				"(ich (will|mochte|wunsche)|wir (wollen|mochten)) nicht ((von ihnen )?angerufen werden|" +
					"dass sie (mich|uns|hier) anrufen)",
			},
			wishes: []string{
				"((lieber|dann|doch) )*(rufen sie|ruft|ruf)( (mich|uns))?( (doch|lieber|wieder|noch ?mal|noch einmal))* LIMIT.*",
				"(sie konnen|konnen sie|konnten sie) (mich|uns) LIMIT( .*)? (anrufen|zuruckrufen)",
			},
		},
		"fr": {
			clauses: []string{
				"(ne )?(mappelez|mappelle) (plus jamais|jamais plus|plus)( (ici|chez moi|a ce numero))?",
				"ne (nous appelez|me (rappelez|telephonez|contactez|derangez)|appelez|telephonez|rappelez)" +
					" (plus jamais|jamais plus|plus|jamais)( (ici|chez moi|a ce numero|ce numero))?",
				"ne (mappelez|me (rappelez|telephonez|contactez)) (pas|jamais)",
				"(arretez|arrete|cessez|cesse) (de (mappeler|nous appeler|me (telephoner|rappeler|contacter|deranger))|dappeler)",
				"je ne (veux|souhaite|desire) (plus|pas) (etre (appele|contacte|derange)e?|que vous mappeliez|" +
					"recevoir (dappels|vos appels)|dappels)( de votre part)?",
				"(de )?ne plus (mappeler|nous appeler|me (rappeler|contacter|telephoner))",
				"(retirez|enlevez|supprimez|rayez|otez|effacez) (moi|nous|mon numero|mon nom) de (votre|vos|la|cette)" +
					" (listes?|fichiers?)( dappels?)?",
				"(supprimez|effacez|retirez|enlevez) mon numero( de telephone)?",
				"((pouvez|pourriez) vous|veuillez) (ne plus mappeler|arreter de mappeler|cesser de mappeler|" +
					"me (retirer|enlever|rayer|supprimer) de (votre|la) liste|(supprimer|effacer|retirer) mon numero)",
			},
			fillers: []string{
				"sil (vous|te) plait", "svp", "merci", "bon", "alors", "donc", "ecoutez", "vraiment", "ok", "monsieur", "madame",
				"bonjour", "bonsoir", "du tout", "je vous (en )?prie",
			},
			links: []string{"et", "ou", "car", "parce que", "sinon", "mais"},
			limits: []string{
				"avant", "apres", "jusqu[ae]u?x?", "tard", "soir", "matin", "midi", "nuit",
				"(lun|mar|mercre|jeu|vendre|same)di", "dimanche", "semaine", "week ?end", "pendant", "quand",
				"lorsque", "si", "sauf", "plutot", "heures?", "moment", "linstant", "maintenant", "portable",
				"entre", "tant", "je vous r?appell\\w*",
				"demain", "aujourdhui", "travail", "bureau", "plus tard",
			},
			notNow: []string{
				`pas (maintenant|aujourdhui|ce soir|tout de suite)|pas avant \w+( heures)?`,
			},
			bare: []string{
				"ne (mappelez|me (rappelez|telephonez|contactez)) pas",
				"je ne (veux|souhaite|desire) pas (etre (appele|contacte|derange)e?|que vous mappeliez|" +
					"recevoir (dappels|vos appels)|dappels)",
			},
			wishes: []string{
				"((plutot|vous (pouvez|pourrez)|pouvez vous|pourriez vous) )*((me|nous) )?(r?appele[rz]|" +
					"r?appelle|reessayez)( (moi|nous))?( plutot)? LIMIT.*",
			},
		},
		"es": {
			clauses: []string{
				"(ya )?(no|nunca|jamas) (me|nos) (llame|llamen|llames|telefonee|telefoneen|contacte|contacten|moleste|molesten)" +
					"( (nunca|jamas|mas|otra vez|de nuevo|aqui|a este numero))*",
				"(ya )?no (llame|llamen|llames) ((mas|nunca mas|otra vez|de nuevo)( (aqui|a este numero))?|a este numero( mas)?)",
				"nunca mas (me|nos) (llame|llamen|llames|vuelvan? a llamar)",
				"(no|nunca)( (me|nos))? (vuelva|vuelvan|vuelvas) a (llamar|llamarme|llamarnos|molestarme|contactarme)" +
					"( (nunca|jamas|mas|aqui|a este numero))*",
				"(deje|dejen|deja|pare|paren) de (llamar|llamarme|llamarnos|molestarme)( (aqui|a este numero))?",
				"(ya )?no quiero (que (me|nos) (llamen?|llames|vuelvan? a llamar)|(recibir )?(mas )?llamadas( suyas| de" +
					" ustedes)?)" +
					"( (mas|nunca|nunca mas))?",
				"no mas llamadas",
				"(quite|quiten|quita|borre|borren|elimine|eliminen|saque|saquen)(me|nos) de (su|la|sus|esta)" +
					" (listas?|base de datos)( de llamadas)?",
				"(borren?|eliminen?|quiten?|saquen?) mi (numero|telefono|nombre)( de (su|la|sus) (listas?|base de datos))?",
				"(pueden?|podrian?) (dejar de llamarme|(quitar|borrar|eliminar|sacar)me de (su|la) lista|no llamarme mas|" +
					"(quitar|borrar|eliminar) mi numero)",
			},
			fillers: []string{
				"hasta luego",
				"por favor", "no gracias", "gracias", "bueno", "oiga", "oye", "mire", "de verdad", "senora?", "senorita", "vale",
				"ok", "en absoluto", "hola", "buen(os|as) (dias|tardes|noches)",
			},
			links: []string{"y", "o", "porque", "pero"},
			limits: []string{
				"antes", "despues", "hasta", "tarde", "luego", "noche", "lunes", "martes", "miercoles",
				"jueves", "viernes", "sabado", "domingo", "semana", "mientras", "cuando", "si", "salvo",
				"excepto", "sino", "mejor", "ahora", "momento", "a las?", "movil", "celular", "entre",
				"mediodia", "yo", "l[eo]s? llam\\w*",
				"manana", "hoy", "trabajo", "oficina", "mas tarde", "ahora no",
			},
			notNow: []string{
				"(ahora|hoy) no|no (ahora|hoy)",
			},
			bare: []string{
				"no (me|nos) (llame|llamen|llames|telefoneen?|contacten?|molesten?)( (aqui|a este numero))?",
				"no (llamen?|llames) a este numero",
				"no quiero (que (me|nos) (llamen?|llames)|(recibir )?llamadas)",
			},
			wishes: []string{
				"((mejor|puede|pueden|podrian?) )*((me|nos) )?(llam(e|en|a|ar)(me|nos)?|vuelv[ae]n? a llamar(me|" +
					"nos)?)( mejor)? LIMIT.*",
			},
		},
		"it": {
			clauses: []string{
				"non (mi|ci) (chiami|chiamate|chiamare|telefoni|telefonate|telefonare|contatti|contattate|contattare|disturbi|" +
					"disturbate|richiami|richiamate|richiamare)( (piu|mai piu|di nuovo|qui|a questo numero))*",
				"non (chiami|chiamate|telefoni|telefonate|richiami|richiamate) (piu|mai piu)( (qui|a questo numero))?",
				"non (chiamatemi|telefonatemi|richiamatemi|contattatemi|disturbatemi|chiamarmi|richiamarmi|chiamateci)" +
					"( (piu|mai piu))?",
				"(la )?(smetta|smettete|smettetela|smettila) di (chiamarmi|chiamare|telefonarmi|telefonare|disturbarmi|" +
					"contattarmi)",
				"basta (chiamate|telefonate|chiamarmi|con (queste |le )?(chiamate|telefonate))",
				"non voglio (piu )?(essere (chiamat|contattat|disturbat)[oa]|(ricevere )?(piu )?(altre |vostre )?(chiamate|" +
					"telefonate)|" +
					"che mi (chiami|chiamate|chiamiate))( (piu|mai piu|da voi))*",
				"(mi|ci) (tolga|tolgano|cancelli|rimuova|elimini) dall[ae]( (vostr|su|quest)[ae])? list[ae]",
				"(toglietemi|cancellatemi|rimuovetemi|eliminatemi) dall[ae]( (vostr|su|quest)[ae])? list[ae]",
				"(cancelli|cancellate|elimini|eliminate|tolga|togliete|rimuova|rimuovete) il mio (numero|nome)" +
					"( dalla( vostra| sua)? lista)?",
				"(puo|potete|potrebbe|potreste) ((toglier|cancellar|rimuover)mi dalla( vostra| sua)? lista|smettere di chiamarmi|" +
					"non chiamarmi piu|cancellare il mio numero)",
			},
			fillers: []string{
				"per (favore|piacere|cortesia)", "no grazie", "grazie", "senta", "guardi", "allora", "ok", "davvero", "signor[ae]?",
				"[lv][ai] prego", "buongiorno", "buonasera",
			},
			links: []string{"e", "o", "perche", "ma", "altrimenti"},
			limits: []string{
				"prima", "dopo", "fino", "finche", "tardi", "sera", "mattin[ao]", "pomeriggio", "mezzogiorno",
				"notte", "(lune|marte|mercole|giove|vener)di", "sabato", "domenica", "settimana", "mentre",
				"quando", "se", "salvo", "tranne", "invece", "piuttosto", "adesso", "ora", "ore", "alle",
				"cellulare", "tra", "entro", "momento", "chiamo", "chiamero", "richiamo",
				"domani", "oggi", "stasera", "lavoro", "ufficio", "piu tardi",
			},
			notNow: []string{
				"non (ora|adesso|oggi|stasera)|(ora|adesso|oggi|stasera) no",
			},
			bare: []string{
				"non (mi|ci) (chiami|chiamat?e|telefoni|telefonate|contatti|contattate|disturbi|disturbate|" +
					"richiami|richiamate)( (qui|a questo numero))?",
				"non (chiamatemi|telefonatemi|richiamatemi|contattatemi|disturbatemi|chiamarmi|richiamarmi|chiamateci)",
				"non voglio (essere (chiamat|contattat|disturbat)[oa]|(ricevere )?(chiamate|telefonate)|" +
					"che mi (chiami|chiamate|chiamiate))",
			},
			wishes: []string{
				"((piuttosto|magari|puo|potete|potrebbe) )*((mi|ci) )?(ri)?(chiami|chiama|chiamate|chiamare|" +
					"provi|provate)(mi|ci)? LIMIT.*",
			},
		},
		"pt": {
			clauses: []string{
				"(nao|nunca) (me|nos) (ligue|liguem|ligues|telefone|telefonem|contacte|contactem|contate|contatem)" +
					"( (mais|nunca mais|outra vez|de novo|novamente|aqui|para ca|para este numero))*",
				"(nao|nunca) (me|nos) (liga|chame|chamem|incomode|incomodem) (mais|nunca mais)",
				"nao (ligue|liguem|telefone|telefonem) (mais|nunca mais|outra vez|de novo)( para (mim|ca|aqui|este numero))?",
				"nao (ligue|liguem|telefone|telefonem) para (mim|ca|aqui|este numero)( (mais|nunca mais|outra vez))?",
				"nunca mais (me |nos )?(ligue|liguem|liga|ligues|telefone|telefonem)( para (mim|ca|aqui|este numero))?",
				"nao (me |nos )?(volte|voltem|voltes|torne|tornem) a (me )?(ligar|telefonar|contactar|incomodar)( me)?" +
					"( mais)?( para (mim|ca|aqui|este numero))?",
				"(pare|parem|deixe|deixem) de (me |nos )?(ligar|telefonar|incomodar|contactar)( me)?( para (mim|ca|aqui|" +
					"este numero))?",
				"nao quero (mais )?(que me (liguem?|telefonem?|contactem?)|(receber )?(mais )?(suas |vossas )?" +
					"(chamadas|ligacoes|telefonemas))( (vossas|suas|mais|nunca mais))?",
				"(retirem?|tirem?|removam?|risquem?|apaguem?|eliminem?|remova|exclua) me d[ae]s?( (sua|vossa))?" +
					" (lista|base de dados)( de (chamadas|contactos|contatos))?",
				"me (retirem?|tirem?|remova|removam|risquem?|exclua) d[ae]s?( (sua|vossa))? (lista|base de dados)",
				"(apaguem?|eliminem?|tirem?|remova|removam|retirem?|exclua|delete) (o )?meu (numero|nome|contacto)" +
					"( da( (sua|vossa))? lista)?",
				"(pode|podem|poderia|podia) ((parar|deixar) de me ligar|(tirar|retirar|remover) me da( (sua|vossa))? lista|" +
					"me (tirar|retirar|remover) da( (sua|vossa))? lista|nao me ligar mais|(apagar|remover|tirar) o meu numero)",
			},
			fillers: []string{
				"ate (logo|mais)",
				"por favor", "se faz favor", "faz favor", "muito obrigad[oa]", "obrigad[oa]", "olh[ea]", "escute", "ok", "senhora?",
				"bom dia", "boa (tarde|noite)",
			},
			links: []string{"e", "ou", "porque", "mas", "senao"},
			limits: []string{
				"antes", "depois", "apos", "ate", "tarde", "noite", "manha", "segunda", "terca", "quarta",
				"quinta", "sexta", "sabado", "domingo", "semana", "enquanto", "quando", "se", "salvo",
				"exc?epto", "exceto", "a menos", "agora", "horas?", "telemovel", "celular", "entre", "meio dia",
				"momento", "melhor", "eu",
				"amanha", "hoje", "trabalho", "escritorio", "mais tarde", "agora nao",
			},
			notNow: []string{
				"(agora|hoje) nao|nao (agora|hoje)",
			},
			bare: []string{
				"nao (me|nos) (liguem?|ligues|telefonem?|contactem?|contatem?)( (aqui|para ca|para este numero))?",
				"nao (liguem?|telefonem?) para (mim|ca|aqui|este numero)",
				"nao quero (que me (liguem?|telefonem?|contactem?)|(receber )?(chamadas|ligacoes|telefonemas))",
			},
			wishes: []string{
				"((melhor|pode|podem|poderia) )*((me|nos) )?(liguem?|liga|ligar|telefonem?|volte a ligar)( (me|" +
					"nos|para mim))? LIMIT.*",
			},
		},
		"nl": {
			clauses: []string{
				"belt?( u| jullie)? (me|mij|ons|hier|dit nummer|naar dit nummer) (niet meer|nooit meer|niet weer|nooit weer|" +
					"niet nog een keer|niet)( (op|terug))?",
				"belt?( u| jullie)? (niet meer|nooit meer|niet weer)( (hier|naar dit nummer))?",
				"((kunt u|wilt u|zou u|u moet|kun je|wil je) )?((mij|me|ons|hier) )?(niet meer|nooit meer|niet weer) bellen",
				"ik wil (niet meer|nooit meer|niet) (door (u|jullie) )?(gebeld worden|worden gebeld)( door (u|jullie))?",
				"ik wil niet (meer )?dat (u|jullie|je) (me|mij) (nog )?(belt|bellen)",
				"ik wil geen (telefoontjes|oproepen)( van (u|jullie))?( meer)?( ontvangen)?",
				"((kunt u|wilt u|zou u) )?(stop|stopt u|stoppen|hou op|houd op|houdt u op|ophouden) met (bellen|(mij|me|" +
					"ons) te bellen)",
				"(haal|haalt|verwijder|verwijdert|schrap)( u)? (mij|me|ons|mijn (telefoon)?nummer|mijn naam) (van|uit)" +
					" (de|uw|je|jullie|deze) ((bel)?lijst|bestand|systeem)( af)?",
				"(verwijder|verwijdert|wis|schrap)( u)? mijn (telefoon)?nummer",
				"(kunt u|wilt u|zou u) (mij|me|mijn (telefoon)?nummer) (van|uit) (de|uw|jullie) (bel)?lijst" +
					" (halen|verwijderen|schrappen)",
				"zet (mij|me) (op|in) (het|de|uw) bel me niet (register|lijst)",
			},
			fillers: []string{
				"alsjeblieft", "alstublieft", "graag", "nee dank (u|je)", "dank (u|je)( wel)?", "bedankt", "echt", "hoor", "nou",
				"luister", "meneer", "mevrouw", "goede(morgen|middag|navond)", "oke?",
			},
			links: []string{"en", "of", "want", "omdat", "anders", "maar"},
			limits: []string{
				"voor", "voordat", "na", "nadat", "tot", "totdat", "pas", "avond", "ochtend", "middag",
				"(maan|dins|woens|donder|vrij|zater|zon)dag", "week", "weekend", "tijdens", "als", "wanneer",
				"terwijl", "behalve", "tenzij", "liever", "nu", "om", "uur", "mobiel", "tussen", "momenteel",
				"moment", "zolang", "ik bel", "s (avonds|nachts|ochtends|morgens|middags)",
				"later", "morgen", "overmorgen", "vandaag", "vanavond", "werk", "kantoor", "straks", "nu niet",
			},
			notNow: []string{
				"niet (nu|vandaag|vanavond)|(nu|vandaag|vanavond) niet",
			},
			bare: []string{
				"belt?( u| jullie)? (me|mij|ons|hier|dit nummer|naar dit nummer) niet( (op|terug))?",
				"ik wil niet ((door (u|jullie) )?(gebeld worden|worden gebeld)|dat (u|jullie|je) (me|mij) (belt|bellen))",
			},
			wishes: []string{
				"((liever|dan) )*belt?( u)?( (me|mij|ons))?( (terug|liever))* LIMIT.*",
				"(u kunt|kunt u|je kunt) (me|mij|ons) LIMIT( .*)? (bellen|terugbellen)",
			},
		},
		"pl": {
			clauses: []string{
				"((juz|wiecej|nigdy|do (mnie|nas)|na ten numer|tu|tutaj) )*nie ((juz|wiecej|do (mnie|nas)) )*" +
					"(dzwon|dzwoncie|dzwonic|telefonuj|telefonujcie|telefonowac)" +
					"( (juz|wiecej|nigdy|do (mnie|nas)|na ten numer|tu|tutaj|ponownie))*",
				"niech (pan|pani|panstwo) ((juz|wiecej|nigdy|do (mnie|nas)) )*nie dzwoni(a)?( (juz|wiecej|nigdy|do (mnie|nas)))*",
				"(czy )?(moze|moga|mozecie|moglibyscie|moglby|moglaby)( (pan|pani|panstwo))? " +
					"((juz|wiecej|do (mnie|nas)) )*nie dzwonic( (juz|wiecej|do (mnie|nas)))*",
				"((czy )?(moze|moga|mozecie|moglibyscie|moglby|moglaby)( (pan|pani|panstwo))? )?(przestancie|przestan|przestac)" +
					"( do (mnie|nas))? (dzwonic|telefonowac)( do (mnie|nas))?",
				"nie (chce|zycze sobie)( (juz|wiecej|zadnych|kolejnych|dalszych))* (telefonow|polaczen)( od (was|panstwa))?",
				"nie (chce|zycze sobie)( juz)? (zebyscie|abyscie)( (do mnie|wiecej|juz))* dzwonili( do mnie)?( wiecej)?",
				"((czy )?(moze|moga|mozecie|moglibyscie|moglby|moglaby)( (pan|pani|panstwo))? )?" +
					"(usuncie|usun|usunac|wykreslcie|wykreslic|skreslcie|skreslic|wypisac|wypiszcie) (mnie|nas|moj numer) z" +
					"( (waszej|swojej|panstwa|tej))? (listy|bazy)( danych)?",
				"(mnie|moj numer) (usunac|wykreslic|skreslic|wypisac) z( (waszej|swojej|panstwa|tej))? (listy|bazy)( danych)?",
				"(usuncie|usun|usunac|skasujcie|skasowac|wykasujcie|wykasowac) (moj|nasz|ten) numer( telefonu)?",
			},
			fillers: []string{
				"prosze pan(a|i|stwa)", "bardzo prosze", "prosze", "dziekuje", "halo", "dzien dobry", "dobry wieczor", "naprawde",
				"ok", "dobrze", "wiec",
			},
			links: []string{"i", "oraz", "lub", "albo", "bo", "ale", "a", "inaczej"},
			limits: []string{
				"przed", "po", "dopoki", "az", "dopiero", "teraz", "rano", "wieczor(em)?", "poludni[ea]m?",
				"poniedzial(ek|ku)", "wtor(ek|ku)", "srod[aey]", "czwart(ek|ku)", "piat(ek|ku)", "sobot[aey]",
				"niedziel[aei]", "weekend", "tydzien", "tygodni[au]", "kiedy", "gdy", "jesli", "jezeli",
				"chyba", "podczas", "zamiast", "lepiej", "raczej", "razie", `godzin\w*`, "komorke", "miedzy",
				`noc\w*`, "zadzwonie", "oddzwonie",
				"pozniej", "jutr[oa]", "dzis", "dzisiaj", "pracy", "teraz nie",
			},
			notNow: []string{
				"nie (teraz|dzis|dzisiaj)|(teraz|dzis|dzisiaj) nie",
			},
			bare: []string{
				"((do (mnie|nas)|na ten numer|tu|tutaj) )?nie (do (mnie|nas) )?(dzwon|dzwoncie|dzwonic|telefonuj|" +
					"telefonujcie|telefonowac)( (do (mnie|nas)|na ten numer|tu|tutaj))?",
				"niech (pan|pani|panstwo) (do (mnie|nas) )?nie dzwonia?( do (mnie|nas))?",
				"(czy )?(moze|moga|mozecie|moglibyscie|moglby|moglaby)( (pan|pani|panstwo))? (do (mnie|nas) )?nie dzwonic" +
					"( do (mnie|nas))?",
			},
			wishes: []string{
				"((lepiej|czy|moze|moga|mozecie)( (pan|pani|panstwo))? )*(zadzwon|zadzwoncie|zadzwonic|dzwon|" +
					"dzwoncie|dzwonic|oddzwoncie|oddzwonic)( do (mnie|nas))? LIMIT.*",
			},
		},
		"cs": {
			clauses: []string{
				"((uz|vickrat|nikdy|sem|mne|mi|nam|vice|znovu) )*(nevolejte|nevolej|nevolat|netelefonujte|nekontaktujte)" +
					"( (uz|vickrat|nikdy|sem|mne|mi|nam|me|vice|znovu|na toto cislo))*",
				"(prestante|prestan|(muzete|mohli byste|mohla? byste) prestat)( (mi|nam|uz|sem))* (volat|telefonovat)( (mi|" +
					"nam|sem))?",
				"nechci( (uz|od vas|dostavat))*( zadne)? (dalsi )?(hovory|telefonaty)( od vas)?",
				"nechci( uz)? abyste (mi|nam) (uz |jeste )?(volali|volala?|telefonovali)( (uz|vickrat|znovu))?",
				"(vymazte|smazte|vyskrtnete|odstrante|vyradte) (me|mne|nas|moje cislo|moje jmeno) ze?" +
					"( (vaseho|sveho|tohoto|vasi))? (seznamu|databaze)",
				"(vymazte|smazte|odstrante|vyskrtnete)( si)? (moje|me|nase) (telefonni )?cislo",
				"(muzete|mohli byste|mohla? byste) (me|moje cislo) (vymazat|vyskrtnout|odstranit) ze?( vaseho)? seznamu",
			},
			fillers: []string{
				"prosim( vas)?", "dekuj[iu]", "opravdu", "halo", "dobry den", "pan[ei]", "tak", "poslouchejte", "laskave", "ok",
				"dobre",
			},
			links: []string{"a", "nebo", "protoze", "ale", "jinak"},
			limits: []string{
				"pred", "po", "do", "az", "dokud", "ted", "nyni", "rano", "vecer", "odpoledne", "dopoledne",
				`poledn\w*`, "pondeli", "utery", "stred[auy]", `ctvrt(ek|ka)`, "pat(ek|ku)", "sobot[auy]",
				"nedel[ei]", `vikend\w*`, "tyden", "kdyz", "pokud", "jestli", "behem", "krome", "misto",
				"radeji", `kancelar\w*`, "mobil", `hodin\w*`, "mezi", "noci", "zatim", "momentalne", "zavolam",
				"pozdeji", "zitra", "dnes", "dneska", "prac[ei]", "ted ne",
			},
			notNow: []string{
				"(dnes|dneska|ted) ne|ne (dnes|dneska|ted)",
			},
			bare: []string{
				"((sem|mne|mi|nam) )?(nevolejte|nevolej|nevolat|netelefonujte|nekontaktujte)( (sem|mne|mi|nam|me|" +
					"na toto cislo))?",
				"nechci abyste (mi|nam) (volali|volala?|telefonovali)",
			},
			wishes: []string{
				"((radeji|muzete|mohli byste) )*((mi|nam) )?(zavolejte|zavolej|zavolat|volejte|volat)( (mi|nam|me))? LIMIT.*",
			},
		},
		"sv": {
			clauses: []string{
				"ring( (mig|oss|hit|till mig|det har numret))? (inte|aldrig)( (mig|oss|hit|till mig|det har numret))?" +
					"( (mer|mera|igen|nagonsin|hit|langre|tillbaka))*",
				"((kan (ni|du)|(ni|du) (maste|far)) )?sluta (att )?(ringa|ring|kontakta)( till)?( (mig|oss|hit|det har numret))?",
				"(ni|du) (ska|far) (inte|aldrig) ringa( (mig|oss|hit|mer|igen))*",
				"jag vill (inte|aldrig) (att (ni|du) ringer( till)?( mig| hit)?|bli (uppringd|kontaktad)|ha (nagra )?(fler" +
					" )?samtal)" +
					"( (mer|igen|langre|av er|fran er))*",
				"inga fler samtal( fran er)?",
				"((kan|kunde) (ni|du) )?(ta bort|stryk|stryka|radera) (mig|oss|mitt (telefon)?nummer|mitt namn) (fran|ur)" +
					"( (er|eran|din|den har|ert))? (ring|samtals|telefon)?(listan?|register|registret)",
				"((kan|kunde) (ni|du) )?(ta bort|stryk|stryka|radera) mitt (telefon)?nummer",
			},
			fillers: []string{
				"snalla", "nej tack", "tack", "vanligen", "var (snall|vanlig) och", "lyssna", "horni", "hej", "okej", "ok",
				"verkligen", "alltsa", "for guds skull", "god (morgon|kvall)",
			},
			links: []string{"och", "eller", "for", "annars", "men", "eftersom"},
			limits: []string{
				"fore", "innan", "efter", "forran", "tills", `kvall\w*`, `morgon\w*`,
				`(man|tis|ons|tors|fre|lor|son)dag\w*`, `veck\w*`, `helg\w*`, "medan", "nar", "om", "utom",
				"i ?stallet", "hellre", "nu", "klockan", "kl", `mobil\w*`, "mellan", "just", "natten", "lunch",
				"jag ringer",
				"senare", "i ?morgon", "i ?dag", "i ?kvall", "jobbet", "arbetet", "kontoret",
			},
			notNow: []string{
				"inte ((just )?nu|i ?dag|i ?kvall)",
			},
			bare: []string{
				"ring( (mig|oss|hit|till mig|det har numret))? inte( (mig|oss|hit|till mig|det har numret))?",
				"(ni|du) (ska|far) inte ringa( (mig|oss|hit))?",
				"jag vill inte (att (ni|du) ringer( till)?( mig| hit)?|bli (uppringd|kontaktad))",
			},
			wishes: []string{
				"((hellre|kan ni|kan du|ni kan|ni far) )*(ringa?|ringer)( (till mig|till oss|mig|" +
					"oss))?( (tillbaka|hellre|igen))* LIMIT.*",
			},
		},
		"da": {
			clauses: []string{
				"ring (ikke|aldrig)( (mig|os|til mig|til os|her|hertil|dette nummer|til dette nummer|mere|igen|nogensinde|" +
					"laengere|tilbage))*",
				"((kan|vil) (i|du) )?(stop|stoppe|hold op|holde op|lad vaere|lade vaere) med at (ringe|kontakte)" +
					"( (mig|os|til mig|til os|her|hertil|mere|igen))*",
				"(i|du) (skal|ma) (ikke|aldrig) ringe( (til mig|til os|her|hertil|mere|igen))*",
				"jeg (vil|onsker) (ikke|aldrig) ((at )?(ringes op|blive ringet op|kontaktes)|(have )?(at )?(i|du) ringer(" +
					" til mig)?)" +
					"( (mere|igen|af jer))*",
				"(jeg (vil|onsker) ikke (have )?|ikke |ingen )flere opkald( fra jer)?",
				"((kan|vil) (i|du) )?(fjerne?|slet|slette) (mig|os|mit (telefon)?nummer|mit navn) fra( (jeres|din|denne|den" +
					" her))?" +
					" ((ringe|telefon)?listen?|register|registeret|database)",
				"((kan|vil) (i|du) )?(fjerne?|slet|slette) mit (telefon)?nummer",
			},
			fillers: []string{
				"venligst", "nej tak", "tak", "vaer (sod|venlig) at", "hor", "hej", "hallo", "ok", "virkelig", "altsa",
				"god (morgen|dag|aften)",
			},
			links: []string{"og", "eller", "fordi", "ellers", "men"},
			limits: []string{
				"for", "inden", "efter", "forend", "indtil", "aften", "morgenen", "formiddag", "eftermiddag",
				"middag", `(man|tirs|ons|tors|fre|lor|son)dag\w*`, `uge\w*`, `weekend\w*`, "mens", "nar",
				"hvis", "undtagen", "medmindre", "hellere", "stedet", "nu", "klokken", "kl", `mobil\w*`,
				"mellem", "natten", "om", "jeg ringer",
				"senere", "i ?morgen", "i ?dag", "i ?aften", `arbejde\w*`, `kontor\w*`,
			},
			notNow: []string{
				"ikke ((lige )?nu|i ?dag|i ?aften)",
			},
			bare: []string{
				"ring ikke( (mig|os|til mig|til os|her|hertil|dette nummer|til dette nummer))?",
				"(i|du) (skal|ma) ikke ringe( (til mig|til os|her|hertil))?",
				"jeg (vil|onsker) ikke ((at )?(ringes op|blive ringet op|kontaktes)|(have )?(at )?(i|" +
					"du) ringer( til mig)?)",
			},
			wishes: []string{
				"((hellere|kan i|kan du|i kan|du kan|i ma) )*ringe?( (til mig|til os|mig|os))?( (tilbage|hellere|igen))* LIMIT.*",
			},
		},
		"fi": {
			clauses: []string{
				"(alkaa|ala)( (enaa|ikina|koskaan|minulle|meille|tanne|tahan numeroon))* (soittako|soita|soitelko|soittele)" +
					"( (enaa|ikina|koskaan|minulle|meille|tanne|tahan numeroon|uudestaan|uudelleen|takaisin))*",
				"(lopettakaa|lopeta|voisitteko lopettaa|voitteko lopettaa)( (minulle|meille|tanne))?" +
					" (soittaminen|soittelu|soittamisen|soittelun)( (minulle|meille|tanne))?",
				"en halua( (enaa|saada|teilta))* (puheluita|puheluja|soittoja)( (enaa|teilta))*",
				"en halua( enaa)? etta (minulle (enaa )?soitetaan|(te )?soitatte( minulle)?)( (enaa|uudestaan))?",
				"ei enaa puheluita",
				"(poistakaa|poista|voisitteko poistaa|voitteko poistaa) (minut|numeroni|nimeni)" +
					" (soitto)?(listaltanne|listalta|listaltasi|rekisterista|rekisteristanne)",
				"(poistakaa|poista|voisitteko poistaa|voitteko poistaa) (puhelin)?numeroni",
			},
			fillers: []string{
				"ei kiitos", "kiitos", "olkaa hyva", "ole hyva", "ystavallisesti", "pyydan", "hei", "kuulkaa", "oikeasti",
				"todella", "ok", "hyvaa (paivaa|iltaa|huomenta)",
			},
			links: []string{"ja", "tai", "koska", "mutta", "muuten"},
			limits: []string{
				"ennen", "jalkeen", "asti", "saakka", "vasta", "nyt", "illalla", "aamulla", "paivalla", "yolla",
				`(maanan|tiis|tors|perjan|lauan|sunnun)tai\w*`, `keskivii\w*`, `viikonlop\w*`, "viikolla",
				`viikko\w*`, "kun", "jos", "ellei", "paitsi", "sijaan", "mieluummin", "tyopaikalle", "kello",
				"klo", "aikana", "kannykkaan", "valilla", `lounas\w*`, "hetkeen", "kesken", "soitan",
				"myohemmin", "huomenna", "tanaan", "toissa", "toihin", "nyt ei",
			},
			notNow: []string{
				"ei (nyt|tanaan)|(nyt|tanaan) ei",
			},
			bare: []string{
				"(alkaa|ala)( (minulle|meille|tanne|tahan numeroon))? (soittako|soita|soitelko|" +
					"soittele)( (minulle|meille|tanne|tahan numeroon))?",
				"en halua( (saada|teilta))* (puheluita|puheluja|soittoja)( teilta)?",
				"en halua etta (minulle soitetaan|(te )?soitatte( minulle)?)",
			},
			wishes: []string{
				"((mieluummin|voitte|voitteko|voisitteko) )*(soittakaa|soita|soittaa)( (minulle|" +
					"meille))?( (takaisin|mieluummin))* LIMIT.*",
			},
		},
	}
}
