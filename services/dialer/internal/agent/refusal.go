package agent

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// refusal contains the regular expressions that recognise, in one language, that the person refuses
// further calls.
type refusal struct {
	clause        *regexp.Regexp // a whole clause that plainly refuses further calls
	bareClause    *regexp.Regexp // a refusal without a word such as "again" or "stop"; a later sentence can cancel it
	fillerWords   *regexp.Regexp // words without effect on the meaning, such as "please"
	linkWords     *regexp.Regexp // words that begin a new clause, such as "and"
	limitWords    *regexp.Regexp // words that restrict a sentence to a time or a circumstance, such as "before"
	limitSentence *regexp.Regexp // a whole sentence that restricts the sentence before it, such as "not today"
	wishClause    *regexp.Regexp // a clause that requests a call, such as "call me tomorrow"
}

// sentence is the text of one sentence, as normaliseText returns it. Commas separate the clauses.
type sentence struct {
	text     string
	question bool
}

// RefusesFurtherCalls reports whether a person plainly asks not to be called again, in any language
// of the disclosure. It is needed because a model can fail to call the tool opt_out.
//
// A refusal must be a whole clause. A sentence that mentions a time or a circumstance is not a
// refusal, unless it ends with words such as "not ever". A question is a refusal only if it is also
// a request ("Can you ...?").
//
// If a refusal contains no word such as "again" or "stop", a later sentence can cancel it: a
// restriction ("Not today.") or a request for a call ("Call me tomorrow."). In doubt, the result is
// true, because a missed opt-out does more harm than a false one.
func RefusesFurtherCalls(words string) bool {
	all := splitSentences(words)
	for i, s := range all {
		if s.question && !requestExpr().MatchString(s.text) {
			continue
		}
		for _, r := range refusals() {
			if r.matchesSentence(s.text, all[i+1:]) {
				return true
			}
		}
	}
	return false
}

// matchesSentence reports whether a clause of the sentence refuses further calls. It returns false
// if the sentence restricts the refusal to a time or a circumstance, or if a later sentence cancels
// it. The whole sentence without commas is also tested, like a clause.
func (r refusal) matchesSentence(text string, later []sentence) bool {
	text = r.fillerWords.ReplaceAllString(text, " ")
	clauses := r.splitClauses(text)
	if r.limitWords.MatchString(text) && !foreverExpr().MatchString(lastClause(clauses)) {
		return false
	}
	for _, clause := range append(clauses, withoutCommas(text)) {
		if r.clause.MatchString(clause) && (!r.bareClause.MatchString(clause) || !r.isLimited(later)) {
			return true
		}
	}
	return false
}

// isLimited reports whether a later sentence cancels a refusal: it restricts the refusal ("Not
// today.") or ends with a request for a call. It returns false if a later sentence contains a word
// such as "never".
func (r refusal) isLimited(later []sentence) bool {
	found := false
	for _, s := range later {
		text := r.fillerWords.ReplaceAllString(s.text, " ")
		if permanentExpr().MatchString(text) || foreverExpr().MatchString(lastClause(r.splitClauses(text))) {
			return false
		}
		found = found || !s.question && r.limitSentence.MatchString(withoutCommas(text)) || r.endsWithWish(s.question, text)
	}
	return found
}

// endsWithWish reports whether the sentence ends with a request for a later call. In the middle of
// a sentence, such a request can be a threat: "Call me tomorrow and I will call the police."
func (r refusal) endsWithWish(question bool, text string) bool {
	clause := lastClause(r.splitClauses(text))
	return r.wishClause.MatchString(clause) && !notWishExpr().MatchString(clause) &&
		(!question || requestExpr().MatchString(text))
}

// splitClauses splits a sentence at its commas, and at the words that begin a new clause. The
// caller must have removed the filler words.
func (r refusal) splitClauses(text string) []string {
	clauses := strings.Split(r.linkWords.ReplaceAllString(text, ","), ",")
	for i := range clauses {
		clauses[i] = joinFields(clauses[i])
	}
	return clauses
}

func lastClause(clauses []string) string {
	for _, clause := range slices.Backward(clauses) {
		if clause != "" {
			return clause
		}
	}
	return ""
}

func withoutCommas(text string) string { return joinFields(strings.ReplaceAll(text, ",", " ")) }

func joinFields(text string) string { return strings.Join(strings.Fields(text), " ") }

// splitSentences splits a text into normalised sentences. A full stop before a lower-case letter or
// a digit ends only a clause, because it can belong to "a.m." or to an ellipsis.
func splitSentences(words string) []sentence {
	var found []sentence
	var text strings.Builder
	runes := []rune(words)
	for i, r := range runes {
		switch {
		case r == '!', r == '?', r == '\n', r == '.' && endsSentence(runes[i+1:]):
			found = append(found, sentence{text: normaliseText(text.String()), question: r == '?'})
			text.Reset()
		case strings.ContainsRune(".,;–—…", r):
			text.WriteByte(',')
		case unicode.IsLetter(r), unicode.IsDigit(r), unicode.Is(unicode.Mn, r):
			text.WriteRune(r)
		case strings.ContainsRune("'’‘´`", r): // "don't" and "dont" are the same word
		default:
			text.WriteByte(' ')
		}
	}
	return append(found, sentence{text: normaliseText(text.String())})
}

func endsSentence(rest []rune) bool {
	next := strings.TrimLeft(string(rest), " \t\"”“»«¿¡")
	for _, r := range next {
		return unicode.IsUpper(r) || r == '\n'
	}
	return true
}

// normaliseText returns the text in lower case and without accents, because transcripts often omit
// accents.
func normaliseText(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, strings.ToLower(text))
	return accents().Replace(text)
}

var accents = sync.OnceValue(func() *strings.Replacer {
	var pairs []string
	for plain, accented := range map[string]string{
		"a": "áàâãäåą", "c": "çćč", "d": "ď", "e": "éèêëęě", "i": "íìîï", "l": "ł", "n": "ñńň", "o": "óòôõöø",
		"r": "ř", "s": "śš", "t": "ť", "u": "úùûüů", "y": "ýÿ", "z": "źżž", "ae": "æ", "oe": "œ", "ss": "ß",
	} {
		for _, r := range accented {
			pairs = append(pairs, string(r), plain)
		}
	}
	return strings.NewReplacer(pairs...)
})

// requestExpr matches words that turn a question into a request, such as "can you", in every
// language, in the spelling of normaliseText.
var requestExpr = sync.OnceValue(func() *regexp.Regexp {
	return wordsOf([]string{
		"(can|could|would|will) you", "(konnen|konnten|wurden) sie", "(kannst|konntest) du", "(pouvez|pourriez) vous",
		"puede", "pueden", "podria", "podrian", "puo", "potete", "potrebbe", "potreste", "pode", "podem", "poderia",
		"podia", "(kunt|wilt|zou) u", "(kun|wil) je", "moze", "moga", "mozecie", "moglibyscie", "moglby", "moglaby",
		"muzete", "mohli byste", "mohla? byste", "kan (ni|du|i)", "vil (i|du)", "voitteko", "voisitteko",
	})
})

// notWishExpr matches words that show that a clause does not request a call, such as "not" or "if
// you dare", in every language.
var notWishExpr = sync.OnceValue(func() *regexp.Regexp {
	return wordsOf([]string{
		"not", "dont", "nicht", "kein", "keine", "niet", "geen", "inte", "ikke", "pas", "nie",
		"if", "wenn", "falls", "si", "se", "jesli", "jezeli", "pokud", "hvis", "jos",
	})
})

// permanentWords contains the words that make a refusal permanent, such as "never", in every
// language.
const permanentWords = "ever|never|niemals|nie (wieder|mehr)|jamais|nunca|jamas|mai piu|nooit|nigdy|" +
	"nikdy|aldrig|koskaan"

// permanentExpr matches each phrase of permanentWords.
var permanentExpr = sync.OnceValue(func() *regexp.Regexp { return wordsOf([]string{permanentWords}) })

// foreverExpr matches a whole clause such as "not ever" or "never again", in every language.
var foreverExpr = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("^((not|nor|und|auch|nicht|ni|pas|no|ne|nem|nao|ook|niet|ani|inte|ikke|ei) )*(" +
		permanentWords + "|nie|mai|ikina)( (again|any ?more|wieder|mehr|plus|mas|piu|mais|meer|" +
		"wiecej|vice|vickrat|mer|mere|igen|enaa))*$")
})

var refusals = sync.OnceValue(func() map[string]refusal {
	compiled := map[string]refusal{}
	for language, p := range refusalPhrases() {
		limit := `(\w+ )?(` + strings.Join(p.limits, "|") + `)\b`
		compiled[language] = refusal{
			clause:        wholeTextExpr(p.clauses),
			bareClause:    wholeTextExpr(p.bare),
			fillerWords:   wordsOf(p.fillers),
			linkWords:     wordsOf(p.links),
			limitWords:    wordsOf(p.limits),
			limitSentence: wholeTextExpr(p.notNow),
			wishClause:    wholeTextExpr([]string{strings.ReplaceAll(strings.Join(p.wishes, "|"), "LIMIT", limit)}),
		}
	}
	return compiled
})

// wholeTextExpr matches a text that consists of one of the clauses, with any number of "no" before
// it.
func wholeTextExpr(clauses []string) *regexp.Regexp {
	return regexp.MustCompile("^((no|nein|non|nao|nee|nie|ne|nej|ei) )*(" + strings.Join(clauses, "|") + ")$")
}

func wordsOf(phrases []string) *regexp.Regexp {
	return regexp.MustCompile(`\b(` + strings.Join(phrases, "|") + `)\b`)
}
