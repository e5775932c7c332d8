package agent

import (
	"strings"
)

// DisclosureText returns the disclosure, or "" if it is turned off. known is false if there is no
// sentence in the agent's language. The text is then English, and the agent must translate it.
func (s Settings) DisclosureText() (text string, known bool) {
	switch {
	case s.Disclosure.OffReason != "":
		return "", true
	case s.Disclosure.Text != "":
		return s.Disclosure.Text, true
	}
	return inLanguage(disclosures(), s.Language)
}

// VoicemailText returns the text for an answering machine: the disclosure, unless it is turned off,
// and the message. The disclosure is repeated, because the machine does not record the audio before
// its beep.
func (s Settings) VoicemailText() string {
	disclosure, _ := s.DisclosureText()
	if strings.Contains(s.Message, disclosure) {
		return s.Message
	}
	return disclosure + " " + s.Message
}

// NoticeText returns the recording notice, which says that the call is recorded. The text is empty
// if the agent's calls must not be recorded, or if the agent cannot speak a notice. known has the
// same meaning as in DisclosureText.
func (s Settings) NoticeText() (text string, known bool) {
	switch {
	case s.Recording.Off, s.Kind != Realtime && s.Kind != MediaWS && s.Kind != Live && !s.Script.Speaks:
		return "", true
	case strings.TrimSpace(s.Recording.Notice) != "":
		return strings.TrimSpace(s.Recording.Notice), true
	}
	return inLanguage(notices(), s.Language)
}

func inLanguage(sentences map[string]string, language string) (text string, known bool) {
	primary, _, _ := strings.Cut(strings.ToLower(language), "-")
	if primary == "" {
		primary = "en"
	}
	if text := sentences[primary]; text != "" {
		return text, true
	}
	return sentences["en"], false
}

// ObjectsToRecording reports whether the person plainly asks not to be recorded. The dialer checks
// this itself, because a model can fail to call the tool stop_recording.
func ObjectsToRecording(words string) bool {
	lower := strings.ToLower(strings.ReplaceAll(words, "’", "'"))
	for _, phrase := range objections() {
		if strings.Contains(lower, phrase) {
			return true
		}
	}
	return false
}

func objections() []string {
	return []string{
		"stop recording", "stop the recording", "do not record", "don't record", "not want to be recorded", "don't want to be recorded", "turn off the recording",
		"nicht aufzeichnen", "nicht aufnehmen", "keine aufzeichnung", "keine aufnahme", "nicht aufgezeichnet werden", "nicht aufgenommen werden",
		"n'enregistrez pas", "pas être enregistré", "no me grabe", "no quiero que me grabe", "no graben", "non registrate", "non voglio essere registrat",
		"não grave", "não quero ser gravad", "niet opnemen", "niet opgenomen worden", "nie nagrywa", "nenahrávejte", "spela inte in", "optag ikke", "älkää nauhoittako",
	}
}

func notices() map[string]string {
	return map[string]string{
		"en": "This call is recorded. If you do not want that, please say so.",
		"de": "Dieses Gespräch wird aufgezeichnet. Wenn Sie das nicht möchten, sagen Sie es bitte.",
		"fr": "Cet appel est enregistré. Si vous ne le souhaitez pas, dites-le, s'il vous plaît.",
		"es": "Esta llamada se graba. Si no lo desea, dígalo, por favor.",
		"it": "Questa chiamata viene registrata. Se non lo desidera, lo dica, per favore.",
		"pt": "Esta chamada é gravada. Se não o desejar, diga, por favor.",
		"nl": "Dit gesprek wordt opgenomen. Als u dat niet wilt, zeg het dan alstublieft.",
		"pl": "Ta rozmowa jest nagrywana. Jeśli sobie Państwo tego nie życzą, proszę to powiedzieć.",
		"cs": "Tento hovor se nahrává. Pokud si to nepřejete, řekněte to, prosím.",
		"sv": "Samtalet spelas in. Säg till om du inte vill det.",
		"da": "Samtalen optages. Sig til, hvis du ikke ønsker det.",
		"fi": "Tämä puhelu nauhoitetaan. Jos ette halua sitä, sanokaa siitä.",
	}
}

func disclosures() map[string]string {
	return map[string]string{
		"en": "Hello, you are talking to an AI assistant.",
		"de": "Guten Tag, Sie sprechen mit einem KI-Assistenten.",
		"fr": "Bonjour, vous parlez avec un assistant fondé sur l'intelligence artificielle.",
		"es": "Hola, está hablando con un asistente de inteligencia artificial.",
		"it": "Buongiorno, sta parlando con un assistente di intelligenza artificiale.",
		"pt": "Olá, está a falar com um assistente de inteligência artificial.",
		"nl": "Goedendag, u spreekt met een AI-assistent.",
		"pl": "Dzień dobry, rozmawiają Państwo z asystentem opartym na sztucznej inteligencji.",
		"cs": "Dobrý den, hovoříte s asistentem umělé inteligence.",
		"sv": "Hej, du talar med en AI-assistent.",
		"da": "Goddag, du taler med en AI-assistent.",
		"fi": "Hei, puhut tekoälyavustajan kanssa.",
	}
}
