package phone_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence.dev/libs/phone"
)

func TestParse_AcceptsE164Only(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"+1234567": true, "+123456789012345": true, "+15005550006": true, "+999999999": true,
		"+123456": false, "+1234567890123456": false, "+0234567": false, "15005550006": false, "": false,
		"+1500555000a": false, " +15005550006": false, "+15005550006\n": false, "+1 5005550006": false, "+١٢٣٤٥٦٧": false,
	} {
		n, ok := phone.Parse(text)
		if ok != want {
			t.Errorf("Parse(%q) ok = %v, want %v", text, ok, want)
		}
		if ok && string(n) != text {
			t.Errorf("Parse(%q) = %q, want it unchanged", text, n)
		}
	}
}

func zoneNames(n phone.Number) []string {
	names := []string{}
	for _, z := range n.Zones() {
		names = append(names, z.String())
	}
	return names
}

func TestZones_ReturnsTheZonesOfKnownNumbers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, number string
		want         []string
	}{
		{"a San Francisco number has Pacific time", "+14155552671", []string{"America/Los_Angeles"}},
		{"London", "+442079460000", []string{"Europe/London"}},
		{"an old zone name of the metadata becomes the canonical name", "+919876543210", []string{"Asia/Kolkata"}},
		{"a toll-free number has no zone", "+18005551234", []string{}},
		{"an international freephone number has no zone", "+80012345678", []string{}},
		{"a personal number has no zone", "+15005550006", []string{}},
		{"an unassigned area code has no zone", "+15551230000", []string{}},
		{"an unassigned country code has no zone", "+9995551234567", []string{}},
		{"a satellite number has no zone", "+870773111111", []string{}},
		{"a Brazilian mobile number contains the area code", "+5511961234567", []string{"America/Sao_Paulo"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := zoneNames(phone.Number(tt.number)); !slices.Equal(got, tt.want) {
				t.Errorf("Zones(%s) = %v, want %v", tt.number, got, tt.want)
			}
		})
	}
}

func TestZones_OverlayCorrectsThePhoneMetadata(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, number string
		want         []string // the result must include all of these zones
		not          string
	}{
		{
			"an Australian mobile number has all zones of the country", "+61412345678",
			[]string{"Australia/Adelaide", "Australia/Darwin", "Australia/Perth", "Australia/Sydney"}, "",
		},
		{
			"a Russian mobile number has all zones of Russia", "+79161234567",
			[]string{"Asia/Kamchatka", "Europe/Kaliningrad", "Europe/Moscow"}, "Asia/Almaty",
		},
		{"a Kazakh mobile number has no zone of Russia", "+77011234567", []string{"Asia/Almaty"}, "Europe/Moscow"},
		{
			"a Spanish mobile number includes the Canary Islands", "+34612345678",
			[]string{"Atlantic/Canary", "Europe/Madrid"}, "",
		},
		{
			"an Indonesian mobile number has all zones of the country", "+6281234567890",
			[]string{"Asia/Jakarta", "Asia/Jayapura", "Asia/Makassar"}, "",
		},
		{"Queensland has no summer time", "+61731234567", []string{"Australia/Brisbane"}, "Australia/Perth"},
		{"Belém does not have the time of Manaus", "+559132123456", []string{"America/Belem"}, "America/Manaus"},
		{"Recife does not have the time of Noronha", "+558132123456", []string{"America/Recife"}, "America/Noronha"},
		{
			"a mobile number of Pernambuco includes Noronha", "+5581991234567",
			[]string{"America/Noronha", "America/Recife"}, "",
		},
		{"Noronha", "+558136191234", []string{"America/Noronha"}, "America/Recife"},
		{
			"Matamoros has summer time, most of Mexico does not", "+528681234567", []string{"America/Matamoros"},
			"America/Mexico_City",
		},
		{
			"area code 636 includes Janos, which has summer time", "+526361234567",
			[]string{"America/Chihuahua", "America/Ciudad_Juarez"}, "",
		},
		{
			"an Antarctic number has the zones of the Australian stations", "+672131234",
			[]string{"Antarctica/Casey", "Antarctica/Davis", "Antarctica/Mawson"}, "",
		},
		{"Norfolk", "+672322345", []string{"Pacific/Norfolk"}, "Antarctica/Casey"},
		{"Chihuahua", "+526141234567", []string{"America/Chihuahua"}, ""},
		{"Saratov", "+78452123456", []string{"Europe/Saratov"}, "Europe/Moscow"},
		{"Morocco", "+212522123456", []string{"Africa/Casablanca"}, "Atlantic/Canary"},
		{"Dublin", "+35312345678", []string{"Europe/Dublin"}, "Europe/London"},
		{"area code 850 has two zones", "+18505551234", []string{"America/Chicago", "America/New_York"}, ""},
		{"an overlay area code that the metadata lacks", "+17295551234", []string{"America/Chicago", "America/New_York"}, ""},
		{"area code 423 has Central and Eastern time", "+14235551234", []string{"America/Chicago", "America/New_York"}, ""},
		{"overlay 458 has the zones of 541", "+14585551234", []string{"America/Denver", "America/Los_Angeles"}, ""},
		{
			"British Columbia includes a zone without summer time", "+16045551234",
			[]string{"America/Fort_Nelson", "America/Vancouver"}, "",
		},
		{"Alberta includes a zone without summer time", "+14035551234", []string{"America/Edmonton", "America/Regina"}, ""},
		{
			"area code 867 has zones from Yukon to Nunavut", "+18675551234",
			[]string{"America/Edmonton", "America/Toronto", "America/Winnipeg"}, "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := zoneNames(phone.Number(tt.number))
			for _, want := range tt.want {
				if !slices.Contains(got, want) {
					t.Errorf("Zones(%s) = %v, want %s among them", tt.number, got, want)
				}
			}
			if slices.Contains(got, tt.not) {
				t.Errorf("Zones(%s) = %v, want no %s", tt.number, got, tt.not)
			}
		})
	}
}

func TestPlace_ReturnsCountryAndRegions(t *testing.T) {
	t.Parallel()
	for number, want := range map[phone.Number]phone.Place{
		"+14155552671": {Country: "US", Regions: []string{"US-CA"}}, "+18505551234": {Country: "US", Regions: []string{"US-FL"}},
		"+19025551234": {Country: "CA", Regions: []string{"CA-NS", "CA-PE"}}, "+17875551234": {Country: "PR"}, "+442079460000": {Country: "GB"},
		"+447700900123": {Country: "GB"}, "+33123456789": {Country: "FR"}, "+61412345678": {Country: "AU"}, "+919876543210": {Country: "IN"},
		"+18005551234": {}, "+15005550006": {}, "+80012345678": {}, "+870773111111": {}, "+9995551234567": {}, "+1415555": {},
	} {
		if got := number.Place(); got.Country != want.Country {
			t.Errorf("Place: got.Country = %v, want %v", got.Country, want.Country)
		} else if !slices.Equal(got.Regions, want.Regions) {
			t.Errorf("Place: got.Regions = %v, want %v", got.Regions, want.Regions)
		}
	}
}

func TestForbidden_ReturnsTheForbiddenKind(t *testing.T) {
	t.Parallel()
	for number, want := range map[phone.Number]string{
		"+19005551234": "premium rate", "+449098790000": "premium rate", "+9791234567": "premium rate", "+33899123456": "premium rate",
		"+491801234567": "shared cost", "+8081234567": "shared cost", "+61131234": "shared cost",
		"+870773111111": "satellite", "+881612345678": "satellite", "+8821612345678": "satellite", "+883510000000": "satellite",
		"+44116123": "short", "+49116117": "short",
		"+15005550006": "", "+15551230000": "", "+1234567": "", "+14155550100": "", "+447700900123": "",
		"+18005551234": "", "+97250123456": "", "+17295551234": "",
	} {
		if got := number.Forbidden(); got != want {
			t.Errorf("Forbidden(%s) = %q, want %q", number, got, want)
		}
	}
}

func TestForbidden_IsEmptyForTestNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := phone.Number(fmt.Sprintf("+1%s555%04d", rapid.SampledFrom([]string{"500", "555", "415", "212"}).Draw(t, "area"), rapid.IntRange(0, 9999).Draw(t, "line")))
		if why := n.Forbidden(); why != "" {
			t.Fatalf("Forbidden(%s) = %q", n, why)
		}
	})
}

func TestZones_AreSortedDistinctAndCanonicalForEveryNumber(t *testing.T) {
	t.Parallel()
	retired := []string{"Asia/Calcutta", "Asia/Rangoon", "Asia/Katmandu", "America/Buenos_Aires", "America/Godthab", "Africa/Asmera", "Etc/Unknown"}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`\+[1-9][0-9]{6,14}`).Draw(t, "number")
		n, ok := phone.Parse(text)
		if !ok {
			t.Fatalf("Parse(%q) refused a number that it had accepted", text)
		}
		names := zoneNames(n)
		if !slices.IsSorted(names) {
			t.Fatal("slices.IsSorted(names) = false, want true")
		}
		if len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Fatalf("length of slices.Compact(slices.Clone(names)) = %d, want %d",
				len(slices.Compact(slices.Clone(names))), len(names))
		}
		for _, name := range names {
			if slices.Contains(retired, name) {
				t.Fatalf("Zones(%s) contains the old name %s", n, name)
			}
			if _, err := time.LoadLocation(name); err != nil {
				t.Fatalf("Zones(%s): %v", n, err)
			}
		}
		m := n.Masked()
		if strings.Contains(text[:len(text)-4], m) {
			t.Fatalf("Masked(%s): text before the last four digits = %q, want it without %q", n, text[:len(text)-4], m)
		}
		if !strings.HasSuffix(m, text[len(text)-4:]) {
			t.Fatalf("Masked(%s): m = %q, want it to end with %q", n, m, text[len(text)-4:])
		}
		if len([]rune(m)) != 5 {
			t.Fatalf("Masked(%s): length of []rune(m) = %v, want 5", n, len([]rune(m)))
		}
	})
}

func TestHasPrefix_EmptyPrefixMatchesNothing(t *testing.T) {
	t.Parallel()
	n := phone.Number("+442079460000")
	if !n.HasPrefix([]string{"+1", "+4420"}) {
		t.Errorf("n.HasPrefix([]string{\"+1\", \"+4420\"}) = false, want true")
	}
	if n.HasPrefix([]string{"+1", ""}) {
		t.Errorf("n.HasPrefix([]string{\"+1\", \"\"}) = true, want false")
	}
	if n.HasPrefix(nil) {
		t.Errorf("n.HasPrefix(nil) = true, want false")
	}
}
