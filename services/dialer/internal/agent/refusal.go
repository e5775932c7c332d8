package agent

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// refusal holds the expressions that recognise a refusal of further calls in one language.
type refusal struct {
	clause *regexp.Regexp // a whole clause that plainly refuses further calls
	filler *regexp.Regexp // words without effect on the meaning, such as "please"
	link   *regexp.Regexp // words that begin a new clause, such as "and"
	limit  *regexp.Regexp // words that limit the sentence in time or circumstance, such as "before"
}

// sentence is the folded text of one sentence. Commas separate its clauses.
type sentence struct {
	text     string
	question bool
}

// RefusesFurtherCalls reports whether the words of a person plainly ask not to be called again. It
// supports the languages of the disclosure. It covers a model that does not call the tool opt_out.
//
// A refusal must be a whole clause. A sentence that mentions a time or a circumstance is no
// refusal. A question is a refusal only if it is a request ("Can you ...?").
func RefusesFurtherCalls(words string) bool {
	for _, s := range sentences(words) {
		if s.question && !request().MatchString(s.text) {
			continue
		}
		for _, r := range refusals() {
			if r.matches(s.text) {
				return true
			}
		}
	}
	return false
}

// matches reports whether a clause of the sentence is a refusal. It also tries the whole sentence
// without its commas.
func (r refusal) matches(text string) bool {
	text = r.filler.ReplaceAllString(text, " ")
	if r.limit.MatchString(text) {
		return false
	}
	clauses := strings.Split(r.link.ReplaceAllString(text, ","), ",")
	for _, clause := range append(clauses, strings.ReplaceAll(text, ",", " ")) {
		if r.clause.MatchString(strings.Join(strings.Fields(clause), " ")) {
			return true
		}
	}
	return false
}

// sentences splits the words into folded sentences. A full stop before a lower-case letter or a
// digit ends only a clause, because it can belong to "a.m." or to an ellipsis.
func sentences(words string) []sentence {
	var found []sentence
	var text strings.Builder
	runes := []rune(words)
	for i, r := range runes {
		switch {
		case r == '!', r == '?', r == '\n', r == '.' && endsSentence(runes[i+1:]):
			found = append(found, sentence{text: fold(text.String()), question: r == '?'})
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
	return append(found, sentence{text: fold(text.String())})
}

// endsSentence reports whether the text behind a full stop begins a new sentence.
func endsSentence(rest []rune) bool {
	next := strings.TrimLeft(string(rest), " \t\"”“»«¿¡")
	for _, r := range next {
		return unicode.IsUpper(r) || r == '\n'
	}
	return true
}

// fold returns the text in lower case without accents, because transcripts often omit them.
func fold(text string) string {
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

// request matches the words that make a question a request, in folded spelling.
var request = sync.OnceValue(func() *regexp.Regexp {
	return wordsOf([]string{
		"(can|could|would|will) you", "(konnen|konnten|wurden) sie", "(kannst|konntest) du", "(pouvez|pourriez) vous",
		"puede", "pueden", "podria", "podrian", "puo", "potete", "potrebbe", "potreste", "pode", "podem", "poderia",
		"podia", "(kunt|wilt|zou) u", "(kun|wil) je", "moze", "moga", "mozecie", "moglibyscie", "moglby", "moglaby",
		"muzete", "mohli byste", "mohla? byste", "kan (ni|du|i)", "vil (i|du)", "voitteko", "voisitteko",
	})
})

// refusals returns the compiled expressions by language.
var refusals = sync.OnceValue(func() map[string]refusal {
	compiled := map[string]refusal{}
	for language, p := range refusalPhrases() {
		compiled[language] = refusal{
			clause: regexp.MustCompile(
				"^((no|nein|non|nao|nee|nie|ne|nej|ei) )*(" + strings.Join(p.clauses, "|") + ")$"),
			filler: wordsOf(p.fillers),
			link:   wordsOf(p.links),
			limit:  wordsOf(p.limits),
		}
	}
	return compiled
})

// wordsOf returns an expression that matches each of the folded phrases between word boundaries.
func wordsOf(phrases []string) *regexp.Regexp {
	return regexp.MustCompile(`\b(` + strings.Join(phrases, "|") + `)\b`)
}
