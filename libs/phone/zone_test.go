package phone

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"hash"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite testdata/zones.golden after reading what changed")

const golden = "testdata/zones.golden"

// TestZones_MatchTheGoldenFile fails if an upgrade of the metadata changes the zones of a number. A
// line of the golden file contains a digest of the zones of one calling code. To update the file,
// run `go test ./phone -run Golden -update`, read the diff, and correct the metadata in overlay.txt
// or nanp.txt.
func TestZones_MatchTheGoldenFile(t *testing.T) {
	t.Parallel()
	got := enumerate()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	before, after := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	shown := 0
	for _, line := range after {
		if !slices.Contains(before, line) && shown < 5 {
			t.Errorf("new: %s", line)
			shown++
		}
	}
	for _, line := range before {
		if !slices.Contains(after, line) && shown < 10 {
			t.Errorf("was: %s", line)
			shown++
		}
	}
	if got != string(want) {
		t.Errorf("the zones of numbers moved: read the difference after `go test ./phone -run Golden -update` in libs, before committing it")
	}
}

func enumerate() string {
	var b strings.Builder
	fmt.Fprintln(&b, "# calling code: digest | zones of its prefixes: how many | where a number without an area may ring. Area code: digest | what the metadata says of its exchanges | what we say")
	for code := 2; code < 1000; code++ {
		prefix := "+" + strconv.Itoa(code)
		if prefix[1] == '1' || len(lookUpZones(prefix)) == 0 {
			continue // the code belongs to North America or is unassigned
		}
		if len(prefix) > 2 && len(lookUpZones(prefix[:2])) > 0 {
			continue // the code begins with a shorter calling code
		}
		if len(prefix) > 3 && len(lookUpZones(prefix[:3])) > 0 {
			continue // the code begins with a shorter calling code
		}
		digits := 3
		if len(lookUpZones(prefix)) > 1 {
			digits = 5
		}
		fmt.Fprintf(&b, "%s | %s", prefix, zonesBelow(prefix, digits, correctedZones))
		fmt.Fprintf(&b, " | %s\n", strings.Join(wholeCountry(prefix, prefix), " "))
	}
	for code := 200; code < 1000; code++ {
		prefix := "+1" + strconv.Itoa(code)
		if a := areas()[prefix[2:]]; a.country != "" {
			fmt.Fprintf(&b, "%s | %s | %s %s\n", prefix, zonesBelow(prefix, 3, lookUpZones),
				a.country, strings.Join(a.zones, " "))
		}
	}
	return b.String()
}

// zonesBelow calls findZones for the prefix followed by every combination of the given number of
// digits. It returns a digest and the counts of the results.
func zonesBelow(prefix string, digits int, findZones func(string) []string) string {
	sum, counts := sha256.New(), map[string]int{}
	for rest := range pow10(digits) {
		answer := strings.Join(findZones(fmt.Sprintf("%s%0*d", prefix, digits, rest)), " ")
		write(sum, answer)
		counts[answer]++
	}
	for answer := range counts {
		for _, name := range strings.Fields(answer) {
			if locations()[name] == nil {
				// a zone that is not loaded changes the digest, so that the test fails
				write(sum, name+" is not loaded")
			}
		}
	}
	var parts []string
	for answer, n := range counts {
		parts = append(parts, fmt.Sprintf("%s: %d", answer, n))
	}
	slices.Sort(parts)
	return hex.EncodeToString(sum.Sum(nil))[:16] + " | " + strings.Join(parts, ", ")
}

func write(sum hash.Hash, text string) {
	_, _ = sum.Write([]byte(text + "\n")) // writing to a hash returns no error
}

func pow10(digits int) int {
	n := 1
	for range digits {
		n *= 10
	}
	return n
}

func TestDataFiles_AreCompleteAndAllTheirZonesExist(t *testing.T) {
	t.Parallel()
	o, err := readOverlay(overlayText)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.only) == 0 {
		t.Fatalf("length of o.only = 0, want more")
	}
	if len(o.add) == 0 {
		t.Fatalf("length of o.add = 0, want more")
	}
	if len(o.country) == 0 {
		t.Fatalf("length of o.country = 0, want more")
	}
	read, err := readAreas(areaText)
	if err != nil {
		t.Fatalf("nanp.txt: readAreas: %v", err)
	}
	if len(read) < 440 {
		t.Fatalf("nanp.txt: length of read = %d, want at least 440", len(read))
	}
	zones := map[string]bool{}
	for _, of := range []map[string][]string{o.only, o.add, o.country} {
		for _, names := range of {
			for _, name := range names {
				zones[name] = true
			}
		}
	}
	for code, a := range read {
		for _, name := range a.zones {
			zones[name] = true
		}
		if !slices.IsSorted(a.zones) {
			t.Errorf("area %s: slices.IsSorted(a.zones) = false, want true", code)
		} else if len(slices.Compact(slices.Clone(a.zones))) != len(a.zones) {
			t.Errorf("area %s: length of slices.Compact(slices.Clone(a.zones)) = %d, want %d",
				code, len(slices.Compact(slices.Clone(a.zones))), len(a.zones))
		}
		if (a.country == "US" || a.country == "CA") != (len(a.regions) > 0) {
			t.Errorf("area %s of %s has the regions %v", code, a.country, a.regions)
		}
	}
	for name := range zones {
		if _, err := time.LoadLocation(name); err != nil {
			t.Errorf("zone %s: time.LoadLocation: %v", name, err)
		} else if name != canonicalZone(name) {
			t.Errorf("zone %s: name = %v, want %v", name, name, canonicalZone(name))
		}
	}
}

// nanp.txt contains every area code of the metadata with the same zones, except the codes that are
// listed here.
func TestAreas_ContainEveryAreaCodeOfThePhoneMetadata(t *testing.T) {
	t.Parallel()
	wrong := map[string]string{
		// 474 serves the same area as 306 (Saskatchewan), which has no daylight saving time; the
		// metadata is wrong
		"474": "America/Winnipeg",
		// 689 serves the same area as 407 (Orlando), which uses Eastern time; the metadata is wrong
		"689": "America/Chicago",
		"605": "America/North_Dakota/Center", // this zone has the same times as Central time
		"701": "America/North_Dakota/Center",
	}
	world := lookUpZones("+1")
	for code := 200; code < 1000; code++ {
		area := strconv.Itoa(code)
		ours := areas()[area].zones
		for exchange := range 1000 {
			theirs := lookUpZones(fmt.Sprintf("+1%s%03d", area, exchange))
			if slices.Equal(theirs, world) {
				continue // the metadata contains only "North America" for this code
			}
			if ours == nil && len(theirs) < 20 {
				t.Errorf("the metadata knows area %s (%v), nanp.txt does not", area, theirs)
				break
			}
			for _, name := range theirs {
				if ours != nil && !slices.Contains(ours, name) && wrong[area] != name {
					t.Errorf("+1%s%03d may be in %s, nanp.txt has %v", area, exchange, name, ours)
				}
			}
		}
	}
}

// An overlay area code serves the same area as another code, so both codes have the same zones.
func TestAreas_CodesOfTheSameAreaHaveTheSameZones(t *testing.T) {
	t.Parallel()
	for _, group := range [][]string{
		{"270", "364"}, {"850", "448"}, {"541", "458"}, {"423", "729"}, {"812", "930"}, {"208", "986"}, {"250", "236", "257", "672", "778"},
		{"306", "474", "639"}, {"418", "367", "581"}, {"407", "689"},
	} {
		for _, code := range group[1:] {
			if !slices.Equal(areas()[code].zones, areas()[group[0]].zones) {
				t.Errorf("%s has %v, %s has %v", code, areas()[code].zones, group[0], areas()[group[0]].zones)
			}
		}
	}
}

func TestReadOverlay_ErrorNamesTheLine(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"+1 only", "1 only UTC", "+1 none UTC", "\n\n+33 add UTC\n+33 add UTC"} {
		if _, err := readOverlay(text); err == nil {
			t.Errorf("%q: readOverlay = nil, want an error", text)
		} else if !strings.Contains(err.Error(), "line ") {
			t.Errorf(`%q: err = %q, want it to contain "line "`, text, err.Error())
		}
	}
	for _, text := range []string{"201 US NJ", "20 US NJ UTC", "201 USA NJ UTC", "201 US NJ UTC\n201 US NJ UTC"} {
		if _, err := readAreas(text); err == nil {
			t.Errorf("%q: readAreas = nil, want an error", text)
		} else if !strings.Contains(err.Error(), "line ") {
			t.Errorf(`%q: err = %q, want it to contain "line "`, text, err.Error())
		}
	}
}
