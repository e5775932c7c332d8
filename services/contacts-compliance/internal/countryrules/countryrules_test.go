package countryrules_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func embedded(t testing.TB) countryrules.Library {
	t.Helper()
	l, err := countryrules.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A pack that changed without a new version is detected.
func TestPacks_GoldenVersions(t *testing.T) {
	t.Parallel()
	const golden = "testdata/versions.golden"
	l := embedded(t)
	var got strings.Builder
	for _, name := range l.Names() {
		raw, err := os.ReadFile("data/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		p, _ := l.Pack(name)
		sum := sha256.Sum256(raw)
		fmt.Fprintf(&got, "%s %d %s\n", name, p.Version, hex.EncodeToString(sum[:]))
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Errorf("os.ReadFile: %v", err)
	} else if string(want) != got.String() {
		t.Errorf("versions = %q, want %q", string(want), got.String())
	}
}

func TestLoad_ErrorNamesFileAndField(t *testing.T) {
	t.Parallel()
	const good = `{"pack":"xx","version":1,"covers_until":"2028-12-31","countries":["US"],"calendars":{"c":[{"name":"n","month":1,"day":1}]},
"rules":[{"purposes":["marketing","service"],"hours":{"mon-fri":["09:00-20:00"],"sat-sun":[]},"holidays":"c","consent":"none","citation":"x"}]}`
	fallback := &fstest.MapFile{Data: []byte(strings.NewReplacer(`"xx"`, `"default"`, `"countries":["US"],`, "").Replace(good))}
	if _, err := countryrules.Load(fstest.MapFS{"xx.json": {Data: []byte(good)}, "default.json": fallback}); err != nil {
		t.Fatalf("valid pack: %v", err)
	}
	for _, tt := range []struct{ what, old, new, want string }{
		{"another name", `"pack":"xx"`, `"pack":"yy"`, `pack: is "yy"`},
		{"no version", `"version":1`, `"version":0`, "version: must be"},
		{"no covers_until", `"covers_until":"2028-12-31",`, ``, "covers_until: is required"},
		{"an invalid date", `"2028-12-31"`, `"2028-02-30"`, "near line "},
		{"an unknown field", `"consent":"none"`, `"consents":"none"`, `unknown field "consents"`},
		{"text after the pack", `"citation":"x"}]}`, `"citation":"x"}]} {}`, "closing brace"},
		{"no country", `["US"]`, `["USA"]`, "countries[0]"},
		{"no countries", `["US"]`, `[]`, "countries: list"},
		{"no purpose", `["marketing","service"]`, `[]`, "rules[0].purposes"},
		{"an unknown purpose", `"service"]`, `"parties"]`, `rules[0].purposes: "parties"`},
		{"nothing for service", `["marketing","service"]`, `["marketing"]`, "rules: there is none without a region for service"},
		{"a day missing", `,"sat-sun":[]`, ``, `rules[0].hours: sun is missing; write "sun": []`},
		{"a day twice", `"sat-sun"`, `"fri-sun"`, "rules[0].hours: fri is listed twice"},
		{"no day", `"sat-sun"`, `"sat-mon"`, `rules[0].hours: "sat-mon" is no day`},
		{"an empty range", `09:00-20:00`, `20:00-20:00`, "is no range"},
		{"ranges that overlap", `["09:00-20:00"]`, `["09:00-20:00","19:00-21:00"]`, "rules[0].hours: mon-fri: 09:00-20:00 and 19:00-21:00 overlap"},
		{"no calendar", `"holidays":"c"`, `"holidays":"d"`, `rules[0].holidays: there is no calendar "d"`},
		{"hours without holidays", `"holidays":"c"`, `"holiday_hours":["09:00-10:00"]`, "rules[0].holiday_hours"},
		{"no consent", `"consent":"none"`, `"consent":"maybe"`, `rules[0].consent: "maybe"`},
		{"no citation", `"citation":"x"`, `"citation":" "`, "rules[0].citation"},
		{"a cap of 0 calls", `"consent"`, `"caps":[{"calls":0,"hours":24}],"consent"`, "rules[0].caps[0]"},
		{"a region elsewhere", `"purposes"`, `"region":"CA-BC","purposes"`, "rules[0].region"},
		{"until before from", `"consent"`, `"from":"2026-02-02","until":"2026-02-01","consent"`, "rules[0].until"},
		{"a gap in time", `"consent"`, `"until":"2026-02-01","consent"`, "rules[0]: has a period"},
		{"a holiday without a day", `"month":1,"day":1`, `"month":1`, `calendars.c[0]: "n": needs one of`},
		{"a holiday on an invalid date", `"month":1,"day":1`, `"month":2,"day":30`, "month 2 has no day 30"},
		{"two kinds of date", `"month":1,"day":1`, `"month":1,"easter":1`, "two kinds of date"},
		{"observed moves too far", `"day":1`, `"day":1,"observed":{"sat":9}`, "observed must move"},
	} {
		text := strings.Replace(good, tt.old, tt.new, 1)
		if text == good {
			t.Fatalf("case %s: the pack is unchanged", tt.what)
		}
		_, err := countryrules.Load(fstest.MapFS{"xx.json": {Data: []byte(text)}, "default.json": fallback})
		if err == nil {
			t.Fatalf("%s: %v\nwant xx.json and %q", tt.what, err, tt.want)
		}
		if !strings.Contains(err.Error(), "xx.json: ") {
			t.Errorf("%s: %s does not contain %q", tt.what, err.Error(), "xx.json: ")
		}
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %s does not contain %q", tt.what, err.Error(), tt.want)
		}
	}
	if _, err := countryrules.Load(fstest.MapFS{}); err == nil {
		t.Error("no files: Load = nil, want an error")
	} else if !strings.Contains(err.Error(), "default.json") {
		t.Errorf(`no files: err = %q, want it to contain "default.json"`, err.Error())
	}
}

func TestHoliday_DatesMatchTheCalendar(t *testing.T) {
	t.Parallel()
	l := embedded(t)
	for _, tt := range []struct {
		choice, country, region, day, want string
	}{
		{"us", "US", "US-AL", "2026-11-26", "Thanksgiving Day"},
		{"us", "US", "US-AL", "2027-12-31", "New Year's Day"}, // 1 January 2028 is a Saturday
		{"us", "US", "US-AL", "2026-04-27", "Confederate Memorial Day"},
		{"us", "US", "US-LA", "2027-02-09", "Mardi Gras"},
		{"us", "US", "US-LA", "2026-11-27", "Acadian Day"},
		{"us", "US", "US-PA", "2026-11-03", "Election Day"},
		{"us", "US", "US-UT", "2027-07-24", "Pioneer Day"},
		{"us", "US", "US-UT", "2027-07-23", "Pioneer Day"}, // it is a Saturday
		{"us", "US", "US-NE", "2027-05-31", "Memorial Day"},
		{"ca", "CA", "CA-BC", "2027-05-24", "Victoria Day"},
		{"ca", "CA", "CA-BC", "2027-02-15", "Family Day"},
		{"fr", "FR", "", "2027-05-06", "Ascension"},
		{"fr", "FR", "", "2026-05-25", "Lundi de Pentecôte"},
		{"de", "DE", "", "2027-03-26", "Karfreitag"},
		{"au", "AU", "", "2027-12-27", "Christmas Day"}, // 25 December is a Saturday
		{"au", "AU", "", "2027-12-28", "Boxing Day"},
		{"au", "AU", "", "2028-04-25", "Anzac Day"},
		{"us", "US", "US-AL", "2026-11-25", ""},
		{"us", "US", "US-TX", "2026-11-26", ""},
	} {
		day, err := window.ParseDate(tt.day)
		if err != nil {
			t.Fatal(err)
		}
		place := phone.Place{Country: tt.country}
		if tt.region != "" {
			place.Regions = []string{tt.region}
		}
		found := ""
		for _, r := range l.For([]countryrules.Choice{countryrules.ParseChoice(tt.choice)}, place) {
			if r.InForce(day) {
				found += r.Holiday(day)
			}
		}
		if found != tt.want {
			t.Errorf("%s in %s%s: %q, want %q", tt.day, tt.country, tt.region, found, tt.want)
		}
	}
}

func TestFor_ReturnsTheRulesOfAPlace(t *testing.T) {
	t.Parallel()
	l := embedded(t)
	states := len(l.For([]countryrules.Choice{{Pack: "us", Purpose: countryrules.Marketing}}, phone.Place{Country: "US"}))
	for _, tt := range []struct {
		name    string
		packs   []string
		place   phone.Place
		regions string
	}{
		{"a state with rules of its own", []string{"us"}, phone.Place{Country: "US", Regions: []string{"US-FL"}}, "us us/US-FL"},
		{"a state without", []string{"us"}, phone.Place{Country: "US", Regions: []string{"US-CA"}}, "us"},
		{"a territory has the federal rule", []string{"us"}, phone.Place{Country: "PR"}, "us"},
		{"for service the states say nothing", []string{"us:service"}, phone.Place{Country: "US", Regions: []string{"US-FL"}}, "us"},
		{"another purpose is held to the next stricter", []string{"us:emergency"}, phone.Place{Country: "US", Regions: []string{"US-FL"}}, "us"},
		{"a country in no pack", []string{"us", "fr"}, phone.Place{Country: "JP"}, "default"},
		{"only the packs of the country", []string{"us", "fr"}, phone.Place{Country: "FR"}, "fr"},
		{"a pack that this build does not have", []string{"xx"}, phone.Place{Country: "FR"}, "xx default"},
		{"one of two provinces", []string{"ca"}, phone.Place{Country: "CA", Regions: []string{"CA-NS", "CA-PE"}}, "ca"},
		{"the fallback by its name", []string{"default"}, phone.Place{Country: "JP"}, "default"},
	} {
		var choices []countryrules.Choice
		for _, text := range tt.packs {
			choices = append(choices, countryrules.ParseChoice(text))
		}
		var got []string
		for _, r := range l.For(choices, tt.place) {
			name := r.Pack
			if r.Region != "" {
				name += "/" + r.Region
			}
			got = append(got, name)
		}
		if strings.Join(got, " ") != tt.regions {
			t.Errorf("%s: %v, want %s", tt.name, got, tt.regions)
		}
	}
	if all := l.For([]countryrules.Choice{{Pack: "us", Purpose: countryrules.Marketing}}, phone.Place{}); len(all) != states+1 {
		t.Errorf("For: length of all = %d, want %d", len(all), states+1)
	} else if states < 20 {
		t.Errorf("For: states = %v, want at least 20", states)
	}
	for _, r := range l.For([]countryrules.Choice{{Pack: "xx", Purpose: countryrules.Marketing}}, phone.Place{Country: "FR"}) {
		if noon := r.On(window.Date{Year: 2026, Month: 12, Day: 1}); r.Pack == "xx" && len(noon) > 0 {
			t.Errorf("a pack that this build lacks is open: %v", noon)
		}
	}
}

func TestOn_ReturnsTheHoursOfADay(t *testing.T) {
	t.Parallel()
	l := embedded(t)
	ask := func(choice, region, day string) string {
		t.Helper()
		when, err := window.ParseDate(day)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, r := range l.For([]countryrules.Choice{countryrules.ParseChoice(choice)}, phone.Place{Country: strings.ToUpper(choice[:2]), Regions: strings.Fields(region)}) {
			if r.Region == region {
				texts = append(texts, fmt.Sprint(r.On(when)))
			}
		}
		return strings.Join(texts, " ")
	}
	for _, tt := range []struct{ choice, region, day, want string }{
		{"us", "", "2026-11-22", "[08:00-21:00]"},
		{"us", "US-TX", "2026-11-22", "[12:00-21:00]"},
		{"us", "US-TX", "2026-11-23", "[09:00-21:00]"},
		{"us", "US-NE", "2026-11-26", "[13:00-21:00]"},
		{"us", "US-PA", "2026-10-11", "[08:00-21:00] [00:00-24:00]"}, // before the rule that closes Sundays
		{"us", "US-PA", "2026-10-18", "[00:00-24:00] []"},
		{"fr", "", "2026-11-23", "[10:00-13:00 14:00-20:00]"},
		{"fr", "", "2026-12-25", "[]"},
		{"us", "", "2028-12-31", "[08:00-21:00]"},
		{"us", "", "2029-01-01", "[]"}, // after covers_until
	} {
		if got := ask(tt.choice, tt.region, tt.day); got != tt.want {
			t.Errorf("%s %s on %s: %s, want %s", tt.choice, tt.region, tt.day, got, tt.want)
		}
	}
}

func TestRule_JSONRoundTrip(t *testing.T) {
	t.Parallel()
	l := embedded(t)
	var choices []countryrules.Choice
	for _, name := range l.Names() {
		choices = append(choices, countryrules.Choice{Pack: name, Purpose: countryrules.Marketing}, countryrules.Choice{Pack: name, Purpose: countryrules.Service})
	}
	for _, r := range l.For(choices, phone.Place{}) {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var back countryrules.Rule
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for day, n := (window.Date{Year: 2026, Month: 1, Day: 1}), 0; n < 1200; day, n = day.AddDays(1), n+1 {
			if len(r.On(day))+len(back.On(day)) > 0 && !reflect.DeepEqual(r.On(day), back.On(day)) || r.Holiday(day) != back.Holiday(day) {
				t.Fatalf("%s on %s: %v, from the record %v", r.Source(), day, r.On(day), back.On(day))
			}
		}
		if got := back.Source(); got != r.Source() {
			t.Errorf("back.Source() = %v, want %v", got, r.Source())
		}
		if !reflect.DeepEqual(back.Caps, r.Caps) {
			t.Errorf("rule = %+v, from JSON = %+v", r, back)
		}
		if back.Consent != r.Consent {
			t.Errorf("back.Consent = %v, want %v", back.Consent, r.Consent)
		}
	}
}

func TestEnding_ReturnsPacksThatExpireBeforeADay(t *testing.T) {
	t.Parallel()
	l := embedded(t)
	if got := l.Ending(window.Date{Year: 2028, Month: 12, Day: 31}); len(got) != 0 {
		t.Errorf("on covers_until: expired packs = %d, want 0", len(got))
	}
	if got := l.Ending(window.Date{Year: 2029, Month: 1, Day: 1}); len(got) != len(l.Names()) {
		t.Errorf("a day later: expired packs = %d, want %d", len(got), len(l.Names()))
	}
}

func TestFreeAt(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ago := func(hours ...int) (dials []time.Time) {
		for _, h := range hours {
			dials = append(dials, start.Add(-time.Duration(h)*time.Hour))
		}
		return dials
	}
	three := countryrules.Cap{Calls: 3, Hours: 24}
	for _, tt := range []struct {
		name  string
		dials []time.Time
		want  time.Duration // after start
	}{
		{"none", nil, 0},
		{"two of three", ago(1, 2), 0},
		{"three: the oldest must be a day ago", ago(1, 5, 20), 4 * time.Hour},
		{"just a day ago counts no more", ago(1, 5, 24), 0},
		{"more than the cap", ago(1, 2, 3, 4), 21 * time.Hour},
	} {
		if got := three.FreeAt(tt.dials, start); !got.Equal(start.Add(tt.want)) {
			t.Errorf("%s: free at %v, want %v", tt.name, got, start.Add(tt.want))
		}
	}
}
