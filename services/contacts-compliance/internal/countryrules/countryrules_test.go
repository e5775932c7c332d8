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

func TestPolicyPacks_EqualTheirGoldenFiles(t *testing.T) {
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
	fallback := &fstest.MapFile{Data: []byte(strings.NewReplacer(`"xx"`, `"default"`, `"countries":["US"],`,
		"").Replace(good))}
	if _, err := countryrules.Load(fstest.MapFS{"xx.json": {Data: []byte(good)}, "default.json": fallback}); err != nil {
		t.Fatalf("valid pack: %v", err)
	}
	for _, tt := range []struct{ what, old, new, want string }{
		{what: "another name", old: `"pack":"xx"`, new: `"pack":"yy"`, want: `pack: is "yy"`},
		{what: "no version", old: `"version":1`, new: `"version":0`, want: "version: must be"},
		{what: "no covers_until", old: `"covers_until":"2028-12-31",`, want: "covers_until: is required"},
		{what: "an invalid date", old: `"2028-12-31"`, new: `"2028-02-30"`, want: "near line "},
		{what: "an unknown field", old: `"consent":"none"`, new: `"consents":"none"`, want: `unknown field "consents"`},
		{what: "text after the pack", old: `"citation":"x"}]}`, new: `"citation":"x"}]} {}`, want: "closing brace"},
		{what: "no country", old: `["US"]`, new: `["USA"]`, want: "countries[0]"},
		{what: "no countries", old: `["US"]`, new: `[]`, want: "countries: list"},
		{what: "no purpose", old: `["marketing","service"]`, new: `[]`, want: "rules[0].purposes"},
		{what: "an unknown purpose", old: `"service"]`, new: `"parties"]`, want: `rules[0].purposes: "parties"`},
		{what: "no rule for service", old: `["marketing","service"]`, new: `["marketing"]`,
			want: "rules: there is none without a region for service"},
		{what: "a day missing", old: `,"sat-sun":[]`, want: `rules[0].hours: sun is missing; write "sun": []`},
		{what: "a day twice", old: `"sat-sun"`, new: `"fri-sun"`, want: "rules[0].hours: fri is listed twice"},
		{what: "no day", old: `"sat-sun"`, new: `"sat-mon"`, want: `rules[0].hours: "sat-mon" is no day`},
		{what: "an empty range", old: `09:00-20:00`, new: `20:00-20:00`, want: "is no range"},
		{what: "ranges that overlap", old: `["09:00-20:00"]`, new: `["09:00-20:00","19:00-21:00"]`,
			want: "rules[0].hours: mon-fri: 09:00-20:00 and 19:00-21:00 overlap"},
		{what: "no calendar", old: `"holidays":"c"`, new: `"holidays":"d"`,
			want: `rules[0].holidays: there is no calendar "d"`},
		{what: "hours without holidays", old: `"holidays":"c"`, new: `"holiday_hours":["09:00-10:00"]`,
			want: "rules[0].holiday_hours"},
		{what: "no consent", old: `"consent":"none"`, new: `"consent":"maybe"`, want: `rules[0].consent: "maybe"`},
		{what: "no citation", old: `"citation":"x"`, new: `"citation":" "`, want: "rules[0].citation"},
		{what: "a cap of 0 calls", old: `"consent"`, new: `"caps":[{"calls":0,"hours":24}],"consent"`,
			want: "rules[0].caps[0]"},
		{what: "a region of another country", old: `"purposes"`, new: `"region":"CA-BC","purposes"`, want: "rules[0].region"},
		{what: "until before from", old: `"consent"`, new: `"from":"2026-02-02","until":"2026-02-01","consent"`,
			want: "rules[0].until"},
		{what: "a gap in time", old: `"consent"`, new: `"until":"2026-02-01","consent"`, want: "rules[0]: has a period"},
		{what: "a holiday without a day", old: `"month":1,"day":1`, new: `"month":1`,
			want: `calendars.c[0]: "n": needs one of`},
		{what: "a holiday on an invalid date", old: `"month":1,"day":1`, new: `"month":2,"day":30`,
			want: "month 2 has no day 30"},
		{what: "two kinds of date", old: `"month":1,"day":1`, new: `"month":1,"easter":1`, want: "two kinds of date"},
		{what: "observed moves too far", old: `"day":1`, new: `"day":1,"observed":{"sat":9}`, want: "observed must move"},
	} {
		text := strings.Replace(good, tt.old, tt.new, 1)
		if text == good {
			t.Fatalf("case %s: the pack is unchanged", tt.what)
		}
		_, err := countryrules.Load(fstest.MapFS{"xx.json": {Data: []byte(text)}, "default.json": fallback})
		if err == nil {
			t.Fatalf("%s: Load = %v, want an error with xx.json and %q", tt.what, err, tt.want)
		}
		if !strings.Contains(err.Error(), "xx.json: ") {
			t.Errorf("%s: error = %s, want it to contain %q", tt.what, err.Error(), "xx.json: ")
		}
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error = %s, want it to contain %q", tt.what, err.Error(), tt.want)
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
		{choice: "us", country: "US", region: "US-AL", day: "2026-11-26", want: "Thanksgiving Day"},
		// 1 January 2028 is a Saturday, so this holiday is observed on Friday
		{choice: "us", country: "US", region: "US-AL", day: "2027-12-31", want: "New Year's Day"},
		{choice: "us", country: "US", region: "US-AL", day: "2026-04-27", want: "Confederate Memorial Day"},
		{choice: "us", country: "US", region: "US-LA", day: "2027-02-09", want: "Mardi Gras"},
		{choice: "us", country: "US", region: "US-LA", day: "2026-11-27", want: "Acadian Day"},
		{choice: "us", country: "US", region: "US-PA", day: "2026-11-03", want: "Election Day"},
		{choice: "us", country: "US", region: "US-UT", day: "2027-07-24", want: "Pioneer Day"},
		// 24 July 2027 is a Saturday, so this holiday is observed on Friday
		{choice: "us", country: "US", region: "US-UT", day: "2027-07-23", want: "Pioneer Day"},
		{choice: "us", country: "US", region: "US-NE", day: "2027-05-31", want: "Memorial Day"},
		{choice: "ca", country: "CA", region: "CA-BC", day: "2027-05-24", want: "Victoria Day"},
		{choice: "ca", country: "CA", region: "CA-BC", day: "2027-02-15", want: "Family Day"},
		{choice: "fr", country: "FR", day: "2027-05-06", want: "Ascension"},
		{choice: "fr", country: "FR", day: "2026-05-25", want: "Lundi de Pentecôte"},
		{choice: "de", country: "DE", day: "2027-03-26", want: "Karfreitag"},
		{choice: "au", country: "AU", day: "2027-12-27", want: "Christmas Day"}, // 25 December is a Saturday
		{choice: "au", country: "AU", day: "2027-12-28", want: "Boxing Day"},
		{choice: "au", country: "AU", day: "2028-04-25", want: "Anzac Day"},
		{choice: "us", country: "US", region: "US-AL", day: "2026-11-25"},
		{choice: "us", country: "US", region: "US-TX", day: "2026-11-26"},
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

func TestLibraryFor_ReturnsTheRulesOfCountryAndRegion(t *testing.T) {
	t.Parallel()
	l := embedded(t)
	states := len(l.For([]countryrules.Choice{{Pack: "us", Purpose: countryrules.Marketing}}, phone.Place{Country: "US"}))
	for _, tt := range []struct {
		name    string
		packs   []string
		place   phone.Place
		regions string
	}{
		{name: "a state with own rules", packs: []string{"us"},
			place: phone.Place{Country: "US", Regions: []string{"US-FL"}}, regions: "us us/US-FL"},
		{name: "a state without own rules", packs: []string{"us"},
			place:   phone.Place{Country: "US", Regions: []string{"US-CA"}},
			regions: "us"},
		{name: "a territory has the federal rule", packs: []string{"us"}, place: phone.Place{Country: "PR"}, regions: "us"},
		{name: "the states have no rules for service calls", packs: []string{"us:service"},
			place: phone.Place{Country: "US", Regions: []string{"US-FL"}}, regions: "us"},
		{name: "a purpose without rules uses the next stricter purpose", packs: []string{"us:emergency"},
			place: phone.Place{Country: "US", Regions: []string{"US-FL"}}, regions: "us"},
		{name: "a country in no pack", packs: []string{"us", "fr"}, place: phone.Place{Country: "JP"}, regions: "default"},
		{name: "only the packs of the country", packs: []string{"us", "fr"}, place: phone.Place{Country: "FR"},
			regions: "fr"},
		{name: "a pack that this build does not have", packs: []string{"xx"}, place: phone.Place{Country: "FR"},
			regions: "xx default"},
		{name: "a number that can be in two provinces", packs: []string{"ca"},
			place: phone.Place{Country: "CA", Regions: []string{"CA-NS", "CA-PE"}}, regions: "ca"},
		{name: "the fallback pack chosen by name", packs: []string{"default"}, place: phone.Place{Country: "JP"},
			regions: "default"},
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
	if all := l.For([]countryrules.Choice{{Pack: "us", Purpose: countryrules.Marketing}},
		phone.Place{}); len(all) != states+1 {
		t.Errorf("For: length of all = %d, want %d", len(all), states+1)
	} else if states < 20 {
		t.Errorf("For: states = %v, want at least 20", states)
	}
	for _, r := range l.For([]countryrules.Choice{{Pack: "xx", Purpose: countryrules.Marketing}},
		phone.Place{Country: "FR"}) {
		if noon := r.On(window.Date{Year: 2026, Month: 12, Day: 1}); r.Pack == "xx" && len(noon) > 0 {
			t.Errorf("a pack that this build lacks is open: %v", noon)
		}
	}
}

func TestRuleOn_ReturnsTheHoursOfADay(t *testing.T) {
	t.Parallel()
	l := embedded(t)
	ask := func(choice, region, day string) string {
		t.Helper()
		when, err := window.ParseDate(day)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, r := range l.For([]countryrules.Choice{countryrules.ParseChoice(choice)},
			phone.Place{Country: strings.ToUpper(choice[:2]), Regions: strings.Fields(region)}) {
			if r.Region == region {
				texts = append(texts, fmt.Sprint(r.On(when)))
			}
		}
		return strings.Join(texts, " ")
	}
	for _, tt := range []struct{ choice, region, day, want string }{
		{choice: "us", day: "2026-11-22", want: "[08:00-21:00]"},
		{choice: "us", region: "US-TX", day: "2026-11-22", want: "[12:00-21:00]"},
		{choice: "us", region: "US-TX", day: "2026-11-23", want: "[09:00-21:00]"},
		{choice: "us", region: "US-NE", day: "2026-11-26", want: "[13:00-21:00]"},
		// the rule that closes Sundays is not yet in force on this day
		{choice: "us", region: "US-PA", day: "2026-10-11", want: "[08:00-21:00] [00:00-24:00]"},
		{choice: "us", region: "US-PA", day: "2026-10-18", want: "[00:00-24:00] []"},
		{choice: "fr", day: "2026-11-23", want: "[10:00-13:00 14:00-20:00]"},
		{choice: "fr", day: "2026-12-25", want: "[]"},
		{choice: "us", day: "2028-12-31", want: "[08:00-21:00]"},
		{choice: "us", day: "2029-01-01", want: "[]"}, // this day is after covers_until
	} {
		if got := ask(tt.choice, tt.region, tt.day); got != tt.want {
			t.Errorf("%s %s on %s: %s, want %s", tt.choice, tt.region, tt.day, got, tt.want)
		}
	}
}

func TestRule_JSONFormDecodesToTheSameRule(t *testing.T) {
	t.Parallel()
	l := embedded(t)
	var choices []countryrules.Choice
	for _, name := range l.Names() {
		choices = append(choices, countryrules.Choice{Pack: name, Purpose: countryrules.Marketing},
			countryrules.Choice{Pack: name, Purpose: countryrules.Service})
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
			if len(r.On(day))+len(back.On(day)) > 0 && !reflect.DeepEqual(r.On(day), back.On(day)) ||
				r.Holiday(day) != back.Holiday(day) {
				t.Fatalf("%s on %s: hours = %v, from JSON = %v", r.Source(), day, r.On(day), back.On(day))
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

func TestEnding_ReturnsPolicyPacksThatExpireBeforeTheGivenDay(t *testing.T) {
	t.Parallel()
	l := embedded(t)
	if got := l.Ending(window.Date{Year: 2028, Month: 12, Day: 31}); len(got) != 0 {
		t.Errorf("on covers_until: expired packs = %d, want 0", len(got))
	}
	if got := l.Ending(window.Date{Year: 2029, Month: 1, Day: 1}); len(got) != len(l.Names()) {
		t.Errorf("a day later: expired packs = %d, want %d", len(got), len(l.Names()))
	}
}

func TestFreeAt_ReturnsTheTimeOfTheNextPermittedDial(t *testing.T) {
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
		want  time.Duration // the time since start at which the cap allows one more call
	}{
		{name: "no dials"},
		{name: "two of three dials", dials: ago(1, 2)},
		{name: "three dials: free one day after the oldest", dials: ago(1, 5, 20), want: 4 * time.Hour},
		{name: "a dial exactly a day ago does not count", dials: ago(1, 5, 24)},
		{name: "more dials than the cap", dials: ago(1, 2, 3, 4), want: 21 * time.Hour},
	} {
		if got := three.FreeAt(tt.dials, start); !got.Equal(start.Add(tt.want)) {
			t.Errorf("%s: free at %v, want %v", tt.name, got, start.Add(tt.want))
		}
	}
}
