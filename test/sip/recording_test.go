package sip_test

import (
	"crypto/tls"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

// The WAV file must have the person on the left channel and the agent on the right channel. The
// time offset between the two channels must be the same as in the call.
func wantRecorded(t *testing.T, house *kit.Workspace, callID string, p phone) {
	t.Helper()
	person, agent := recorded(t, house, callID)
	sent, heard := loudness(p.recordedSamples(t, "enc")), loudness(p.recordedSamples(t, "dec"))
	late, alike := bestAlignment(person, sent)
	also, too := bestAlignment(agent, heard)
	t.Logf("the recording, %s long, begins %s after the person's first frame and %s after the agent's; they are alike to %.2f and %.2f", step*time.Duration(len(person)), late, also, alike, too)
	if alike < 0.6 {
		t.Errorf("alike = %v, want at least 0.6", alike)
	} else if too < 0.6 {
		t.Errorf("too = %v, want at least 0.6", too)
	}
	if off := (late - also).Abs(); off > time.Second {
		t.Errorf("the person's side is %s off the agent's", off)
	}
	if opening := time.Duration(len(disclosure+" "+notice)) * letterDuration; also < opening-time.Second {
		t.Errorf("also = %v, want at least %v", also, opening-time.Second)
	} else if also > opening+2*time.Second {
		t.Errorf("also = %v, want at most %v", also, opening+2*time.Second)
	}
}

func recorded(t *testing.T, house *kit.Workspace, callID string) (person, agent []float64) {
	t.Helper()
	var link struct {
		URL       string `json:"url"`
		ExpiresIn int    `json:"expires_in"`
	}
	until(t, "the recording is available", func() bool {
		return house.API.Into(t.Context(), "GET", "/v1/calls/"+callID+"/recording", nil, 200, &link) == nil
	})
	if link.ExpiresIn != 3600 {
		t.Errorf("expires_in = %d, want 3600", link.ExpiresIn)
	}
	file := filepath.Join(t.TempDir(), "recording.wav")
	if err := os.WriteFile(file, fetched(t, link.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	about := string(sox(t, "--i", file))
	for _, want := range []string{"Channels       : 2", "Sample Rate    : 8000", "u-law"} {
		if !strings.Contains(about, want) {
			t.Errorf("output of sox --i = %s, want it to contain %q", about, want)
		}
	}
	if stat := string(sox(t, file, "-n", "stat")); strings.Contains(stat, "WARN") {
		t.Errorf(`string: stat = %q, want it without "WARN"`, stat)
	} else if !strings.Contains(stat, "Length (seconds)") {
		t.Errorf(`string: stat = %q, want it to contain "Length (seconds)"`, stat)
	}
	return loudness(samplesOf(t, file, 1)), loudness(samplesOf(t, file, 2))
}

func fetched(t *testing.T, url string) []byte {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: soon} //nolint:gosec // the test's stack has its own authority
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("GET %s: io.ReadAll: %v", url, err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: res.StatusCode = %v, want %v", url, res.StatusCode, http.StatusOK)
	}
	return body
}

// step is the duration of the audio for which one loudness value is calculated.
const step = 50 * time.Millisecond

func loudness(samples []int16) (loud []float64) {
	const size = int(step * 8000 / time.Second)
	for at := 0; at+size <= len(samples); at += size {
		sum := 0.0
		for _, s := range samples[at : at+size] {
			sum += math.Abs(float64(s))
		}
		loud = append(loud, sum/float64(size))
	}
	return loud
}

// bestAlignment shifts part along whole, and returns the offset with the highest correlation. The
// maximum correlation is 1.
func bestAlignment(part, whole []float64) (offset time.Duration, correlation float64) {
	for lag := range whole {
		var a, b, ab, aa, bb, n float64
		for i := 0; i < len(part) && lag+i < len(whole); i++ {
			x, y := part[i], whole[lag+i]
			a, b, ab, aa, bb, n = a+x, b+y, ab+x*y, aa+x*x, bb+y*y, n+1
		}
		if n < float64(len(part))*0.8 {
			break
		}
		if r := (n*ab - a*b) / math.Sqrt((n*aa-a*a)*(n*bb-b*b)); r > correlation {
			offset, correlation = time.Duration(lag)*step, r
		}
	}
	return offset, correlation
}
