package agent

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// refusal holds the expressions that recognise a refusal of further calls in one language.
type refusal struct {
	clause *regexp.Regexp // a whole clause that plainly refuses further calls
	bare   *regexp.Regexp // a clause without a word such as "again" or "stop", which later words can limit
	filler *regexp.Regexp // words without effect on the meaning, such as "please"
	link   *regexp.Regexp // words that begin a new clause, such as "and"
	limit  *regexp.Regexp // words that limit the sentence in time or circumstance, such as "before"
	time   *regexp.Regexp // the words of limit that limit the sentence before them as well, such as "tomorrow"
	wish   *regexp.Regexp // a clause that asks for a call, such as "call me tomorrow"
}

// maxLimitingWords is the length of a sentence such as "I am at work", which limits a refusal before it.
const maxLimitingWords = 4

// sentence is the folded text of one sentence. Commas separate its clauses.
type sentence struct {
	text     string
	question bool
}

// RefusesFurtherCalls reports whether the words of a person plainly ask not to be called again. It
// supports the languages of the disclosure. It covers a model that does not call the tool opt_out.
//
// A refusal must be a whole clause. A sentence that mentions a time or a circumstance is no
// refusal. A question is a refusal only if it is a request ("Can you ...?"). Later words limit a
// bare refusal ("Don't call me. Not today."), but not one with a word such as "again" or "stop".
func RefusesFurtherCalls(words string) bool {
	all := sentences(words)
	for i, s := range all {
		if s.question && !request().MatchString(s.text) {
			continue
		}
		for _, r := range refusals() {
			if r.matches(s.text, all[i+1:]) {
				return true
			}
		}
	}
	return false
}

// matches reports whether a clause of the sentence is a refusal that neither the sentence nor the
// later ones limit. It also tries the whole sentence without its commas.
func (r refusal) matches(text string, later []sentence) bool {
	text = r.filler.ReplaceAllString(text, " ")
	if r.limit.MatchString(text) {
		return false
	}
	clauses := r.clauses(text)
	for i, clause := range append(clauses, joined(strings.ReplaceAll(text, ",", " "))) {
		if !r.clause.MatchString(clause) {
			continue
		}
		if !r.bare.MatchString(clause) || !r.limited(clauses[min(i+1, len(clauses)):], later) {
			return true
		}
	}
	return false
}

// limited reports whether the clauses behind a bare refusal, or the later sentences, ask for a call
// or limit the refusal to a time.
func (r refusal) limited(clauses []string, later []sentence) bool {
	for _, s := range later {
		text := r.filler.ReplaceAllString(s.text, " ")
		if r.onlyLimits(s.question, joined(strings.ReplaceAll(text, ",", " "))) {
			return true
		}
		clauses = slices.Concat(clauses, r.clauses(text))
	}
	return slices.ContainsFunc(clauses, func(clause string) bool {
		return r.wish.MatchString(clause) && !negation().MatchString(clause)
	})
}

// onlyLimits reports whether a sentence does nothing else than name a time or a circumstance.
func (r refusal) onlyLimits(question bool, text string) bool {
	if question || len(strings.Fields(text)) > maxLimitingWords || permanent().MatchString(text) {
		return false
	}
	return r.time.MatchString(text) || notThen().MatchString(text) && r.limit.MatchString(text)
}

// clauses splits a sentence without fillers at its commas and links.
func (r refusal) clauses(text string) []string {
	clauses := strings.Split(r.link.ReplaceAllString(text, ","), ",")
	for i := range clauses {
		clauses[i] = joined(clauses[i])
	}
	return clauses
}

// joined returns the words with one space between them.
func joined(text string) string { return strings.Join(strings.Fields(text), " ") }

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

// negation matches words that negate a wish, in every language.
var negation = sync.OnceValue(func() *regexp.Regexp {
	return wordsOf([]string{
		"not", "dont", "nicht", "kein", "keine", "niet", "geen", "inte", "ikke", "pas", "nie", permanent().String(),
	})
})

// permanent matches words that make a refusal unlimited, in every language.
var permanent = sync.OnceValue(func() *regexp.Regexp {
	return wordsOf([]string{
		"ever", "never", "niemals", "nie (wieder|mehr)", "jamais", "nunca", "jamas", "mai piu", "nooit", "nigdy",
		"nikdy", "aldrig", "koskaan",
	})
})

// notThen matches the beginning of a sentence such as "not before noon", in every language.
var notThen = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("^(not|nicht|pas|no|non|nao|niet|nie|ne|inte|ikke|ei) ")
})

// refusals returns the compiled expressions by language.
var refusals = sync.OnceValue(func() map[string]refusal {
	compiled := map[string]refusal{}
	for language, p := range refusalPhrases() {
		limits := slices.Concat(p.limits, p.times)
		limit := `(\w+ )?(` + strings.Join(limits, "|") + `)\b`
		compiled[language] = refusal{
			clause: whole(p.clauses),
			bare:   whole(p.bare),
			filler: wordsOf(p.fillers),
			link:   wordsOf(p.links),
			limit:  wordsOf(limits),
			time:   wordsOf(p.times),
			wish:   whole([]string{strings.ReplaceAll(strings.Join(p.wishes, "|"), "LIMIT", limit)}),
		}
	}
	return compiled
})

// whole returns an expression that matches each of the folded clauses after any number of "no".
func whole(clauses []string) *regexp.Regexp {
	return regexp.MustCompile("^((no|nein|non|nao|nee|nie|ne|nej|ei) )*(" + strings.Join(clauses, "|") + ")$")
}

// wordsOf returns an expression that matches each of the folded phrases between word boundaries.
func wordsOf(phrases []string) *regexp.Regexp {
	return regexp.MustCompile(`\b(` + strings.Join(phrases, "|") + `)\b`)
}
