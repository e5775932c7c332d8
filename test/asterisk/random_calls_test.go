package asterisk_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const (
	// maxOrphaned limits how long a phone can stay connected after its dialer was killed.
	maxOrphaned = 6 * time.Second
	// maxStoreDelay is the longest time between a BYE and the commit of the call's end. The dialer
	// first waits for the transcript of the last words.
	maxStoreDelay = 5 * time.Second
	maxLive       = 20

	// letterDuration is the duration of the audio that the model's voice produces for one letter.
	letterDuration = 60 * time.Millisecond

	account      = "ringfence"
	aiDisclosure = "Hello, I am an AI assistant."
	goodbye      = "That is noted. Goodbye."
	// cutMark follows the text of an interrupted turn in a transcript.
	cutMark = " –"
)

// spokenWords are the texts that a phone can play. The audio of each text is different noise.
var spokenWords = []string{"first question", "second question", "third question"}

// modelAnswers maps the texts and keys of the phone to the model's answers. Each answer begins with
// a different word. This word identifies the answer in an interrupted turn.
var modelAnswers = map[string]string{
	"first question":                 "Yes, that is what we all do here.",
	"second question":                "No, we do not do that, at least not now.",
	"third question":                 "Perhaps, but I have not got an idea yet.",
	"[The person pressed the key 5]": "Five is the list of all that we have.",
	"[The person pressed the key 7]": "Seven is the line to the desk in the hall.",
}

type phone struct {
	number   string
	greeting string
	agent    string
	// steps are the lines of the phone's extension in Asterisk's dialplan.
	steps    []string
	texts    []string
	request  string
	finished kit.Request
}

// detailRecord is a line of Asterisk's call detail records.
type detailRecord struct {
	start, answer, end time.Time
	dialer             string // host:port of the dialer's SIP socket
}

// dialerKill is one SIGKILL of a dialer. replaced is the time at which the next process opened the
// same SIP port.
type dialerKill struct {
	at, replaced time.Time
	ports        map[string]bool
}

func (k dialerKill) of(r detailRecord) bool {
	_, port, err := net.SplitHostPort(r.dialer)
	return err == nil && k.ports[port] && r.start.Before(k.replaced)
}

type trial struct {
	dir      string
	address  string
	model    string
	asterisk *peertest.Asterisk
	stack    *sharedstack.TestStack
	house    *kit.Workspace
	phones   []*phone
	kills    []dialerKill
	// longest is the longest time that a phone stayed connected after its dialer was killed.
	longest time.Duration
	// gap is the longest missing part inside a turn of a recording.
	gap    time.Duration
	voices map[string][]byte
}

// TestRandomCalls_RecordingsEqualTranscripts runs two dialers that call phones of a real Asterisk,
// and kills dialers. After a kill, the phone must soon be disconnected. Each recording must contain
// exactly the turns of its transcript. It must contain every turn of the agent completely.
func TestRandomCalls_RecordingsEqualTranscripts(t *testing.T) {
	peertest.AsteriskInstalled(t)
	random := sharedstack.Seeded(t, 1)
	calls := sharedstack.Trials(20, 200)
	s := startTrial(t, random, calls)
	s.callAll(t, random, sharedstack.Trials(1, 4))
	records := s.records(t)
	s.checkDialers(t, records)
	compared := 0
	for _, p := range s.phones {
		killed := s.checkEnd(t, p, records[p.number])
		if p.finished.CallID != nil && s.checkTranscript(t, p, killed) {
			compared++
		}
	}
	if want := calls / 4; compared < want {
		t.Errorf("compared transcripts = %d, want at least %d", compared, want)
	}
	t.Logf("calls = %d, kills = %d, compared transcripts = %d, longest call after its dialer was killed = %v, "+
		"longest gap in a turn = %v", calls, len(s.kills), compared, s.longest, s.gap)
}

func startTrial(t *testing.T, random *rand.Rand, calls int) *trial {
	t.Helper()
	network := fmt.Sprintf("127.%d.%d.", 128+rand.IntN(127), rand.IntN(256))
	ringfence, address := network+"10", network+"20"
	s := &trial{dir: t.TempDir(), address: ringfence, voices: map[string][]byte{}}
	var err error
	if s.stack, err = sharedstack.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stack.End(!t.Failed()); err != nil {
			t.Errorf("end the stack: %v", err)
		}
	})
	s.startModel(t)
	for i := range calls {
		s.phones = append(s.phones, s.newPhone(t, random, i))
	}
	s.asterisk, err = peertest.StartAsterisk(s.dir, s.configuration(ringfence, address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.asterisk.Stop()
		if t.Failed() {
			t.Logf("log of Asterisk:\n%s", s.asterisk.Output())
		}
	})
	// The second dialer listens for SIP at port 5061. With a low limit of concurrent attempts, both
	// dialers get calls.
	env := strings.Fields(fmt.Sprintf("RINGFENCE_REPLICAS=2 CARRIER=sip SIP_UDP_ADDR=%[1]s:5060 "+
		"SIP_ADVERTISED_ADDR=%[1]s RTP_ADDR=%[1]s REALTIME_KEY=test REALTIME_URL=%s SIMULATOR_TIME_SCALE=1 "+
		"DRAIN_LIMIT=1s RING_LIMIT=8s DIAL_ATTEMPTS=2", ringfence, s.model))
	if err := s.stack.Start(env...); err != nil {
		t.Fatal(err)
	}
	if s.house, err = s.stack.NewWorkspace(t.Context(), t.Name(), "1000"); err != nil {
		t.Fatal(err)
	}
	s.setUp(t, address)
	return s
}

func (s *trial) startModel(t *testing.T) {
	t.Helper()
	var script []map[string]any
	// The model transcribes the nth utterance of a call as the nth line of the script.
	for _, heard := range spokenWords {
		script = append(script, map[string]any{"heard": heard, "text": modelAnswers[heard]})
	}
	for _, heard := range slices.Sorted(maps.Keys(modelAnswers)) {
		if !slices.Contains(spokenWords, heard) {
			script = append(script, map[string]any{"heard": heard, "text": modelAnswers[heard]})
		}
	}
	var err error
	if s.model, err = s.stack.Model(script); err != nil {
		t.Fatal(err)
	}
}

func (s *trial) setUp(t *testing.T, asterisk string) {
	t.Helper()
	trunk := map[string]any{
		"name": "asterisk", "host": asterisk, "username": account, "password": "change-me",
		"channels": 100, "calls_per_second": 20, "caller_ids": []string{"+14155550100"},
	}
	features := map[string]any{"features": map[string]any{"transcripts": true}}
	var added struct {
		ID string `json:"id"`
	}
	err := errors.Join(
		s.house.Admin.Into(t.Context(), "POST", "/admin/v1/trunks", trunk, http.StatusCreated, &added),
		s.house.Admin.Into(t.Context(), "PATCH", "/admin/v1/workspaces/"+s.house.ID, features, http.StatusOK, nil))
	if err != nil {
		t.Fatal(err)
	}
	path := "/admin/v1/workspaces/" + s.house.ID + "/agents"
	for _, p := range s.phones {
		agent := map[string]any{
			"name": "Ida", "kind": "openai_realtime", "language": "en-GB", "instructions": "Be brief.", "greeting": p.greeting,
			"disclosure": map[string]any{"text": aiDisclosure},
		}
		var made struct {
			ID string `json:"id"`
		}
		if err := s.house.Admin.Into(t.Context(), "POST", path, agent, http.StatusCreated, &made); err != nil {
			t.Fatal(err)
		}
		p.agent = made.ID
	}
	s.awaitDialers(t, added.ID)
}

// awaitDialers waits until the trunk has answered the OPTIONS of both dialers. From then on both
// dialers place calls.
func (s *trial) awaitDialers(t *testing.T, trunkID string) {
	t.Helper()
	err := kit.Until(t.Context(), kit.HangTimeout, "both dialers reach the trunk", func() (bool, error) {
		var trunk struct {
			Replicas []struct {
				LastAnswer *struct{} `json:"last_answer"`
			} `json:"replicas"`
		}
		path := "/admin/v1/trunks/" + trunkID
		if err := s.house.Admin.Into(t.Context(), "GET", path, nil, http.StatusOK, &trunk); err != nil {
			return false, err
		}
		reached := 0
		for _, replica := range trunk.Replicas {
			if replica.LastAnswer != nil {
				reached++
			}
		}
		return reached == 2, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *trial) configuration(ringfence, asterisk string) map[string]string {
	var dialplan strings.Builder
	dialplan.WriteString("[from-ringfence]\n")
	for _, p := range s.phones {
		for i, step := range p.steps {
			fmt.Fprintf(&dialplan, "exten => %s,%d,%s\n", p.number, i+1, step)
		}
	}
	pjsip := fmt.Sprintf(`[transport-udp]
type=transport
protocol=udp
bind=%[1]s:5060

[ringfence]
type=endpoint
context=from-ringfence
disallow=all
allow=ulaw
direct_media=no
moh_passthrough=yes
media_address=%[1]s
bind_rtp_to_media_address=yes
auth=ringfence
aors=ringfence

[ringfence]
type=auth
auth_type=userpass
username=%[3]s
password=change-me

[ringfence]
type=aor
contact=sip:%[2]s:5060

[ringfence]
type=identify
endpoint=ringfence
match=%[2]s
`, asterisk, ringfence, account)
	return map[string]string{
		"pjsip.conf": pjsip, "extensions.conf": dialplan.String(), "rtp.conf": "[general]\nrtpstart=20000\nrtpend=20999\n",
		"cdr.conf": "[general]\nenable=yes\nunanswered=yes\n",
		"cdr_custom.conf": "[mappings]\nMaster.csv => ${CDR(dst)},${CDR(start,u)},${CDR(answer,u)},${CDR(end,u)}," +
			"${CDR(userfield)}\n",
	}
}

func (s *trial) newPhone(t *testing.T, random *rand.Rand, i int) *phone {
	t.Helper()
	p := &phone{number: fmt.Sprintf("+1415556%04d", i)}
	p.greeting = fmt.Sprintf("This is call %d of the test, how can I help you on this day?", i)
	ring := fmt.Sprintf("Wait(%.1f)", 0.2+random.Float64())
	p.steps = []string{
		"Set(CDR(userfield)=${CHANNEL(pjsip,remote_addr)})",
		"Verbose(1,CALLED ${EXTEN} BY ${CHANNEL(pjsip,remote_addr)})", "Ringing()", ring,
	}
	switch random.IntN(12) {
	case 0:
		p.steps = append(p.steps, "Hangup(17)")
		return p
	case 1:
		// the phone only rings, and Ringfence cancels the call
		p.steps = append(p.steps, "Wait(60)", "Hangup()")
		return p
	}
	record := fmt.Sprintf("MixMonitor(%s,r(%s)t(%s))", s.file(p, "both"), s.file(p, "agent"), s.file(p, "person"))
	p.steps = append(p.steps, "Answer()", record)
	keys := []string{"5", "7"}
	for range random.IntN(5) {
		switch random.IntN(4) {
		case 0:
			if n := len(p.texts); n < len(spokenWords) {
				p.texts = append(p.texts, spokenWords[n])
				p.steps = append(p.steps, s.play(t, p, append(s.voice(t, spokenWords[n]), silence(time.Second)...)))
			}
		case 1:
			if len(keys) > 0 {
				p.steps = append(p.steps, "SendDTMF("+keys[0]+")", s.play(t, p, silence(time.Second)))
				keys = keys[1:]
			}
		case 2:
			p.steps = append(p.steps, fmt.Sprintf("BridgeWait(hold%d,participant,e(h)S(2))", i))
		case 3:
			p.steps = append(p.steps, s.play(t, p, silence(time.Duration(random.IntN(3000))*time.Millisecond)))
		}
	}
	end := silence(time.Duration(100+random.IntN(5000)) * time.Millisecond)
	if random.IntN(4) == 0 { // the agent ends the call when the key 9 is pressed
		p.steps = append(p.steps, "SendDTMF(9)")
		end = silence(time.Minute)
	}
	p.steps = append(p.steps, s.play(t, p, end), "Hangup()")
	return p
}

func (s *trial) file(p *phone, side string) string {
	return filepath.Join(s.dir, p.number[1:]+"-"+side+".ulaw")
}

func (s *trial) play(t *testing.T, p *phone, audio []byte) (step string) {
	t.Helper()
	path := filepath.Join(s.dir, fmt.Sprintf("%s-%d", p.number[1:], len(p.steps)))
	if err := os.WriteFile(path+".ulaw", audio, 0o600); err != nil {
		t.Fatal(err)
	}
	return "Playback(" + path + ")"
}

func silence(length time.Duration) []byte {
	return bytes.Repeat([]byte{0xFF}, int(length.Milliseconds())*8)
}

func (s *trial) voice(t *testing.T, text string) []byte {
	t.Helper()
	if audio, known := s.voices[text]; known {
		return audio
	}
	host, err := url.Parse(s.model)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Get("http://" + host.Host + "/voice?text=" + url.QueryEscape(text))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	audio, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	s.voices[text] = audio
	return audio
}

func (s *trial) callAll(t *testing.T, random *rand.Rand, kills int) {
	t.Helper()
	var killAt []int
	for k := range kills {
		share := len(s.phones) / (kills + 1)
		killAt = append(killAt, share*(k+1)+random.IntN(share/2+1))
	}
	live := map[*phone]bool{}
	for i, p := range s.phones {
		s.place(t, p)
		live[p] = true
		if slices.Contains(killAt, i) {
			s.killDialer(t)
		}
		s.awaitLive(t, live, maxLive)
	}
	s.awaitLive(t, live, 0)
}

func (s *trial) place(t *testing.T, p *phone) {
	t.Helper()
	req, err := s.house.Place(t.Context(), map[string]any{"to": p.number, "agent_id": p.agent})
	if err != nil {
		t.Fatal(err)
	}
	p.request = req.ID
}

// awaitLive waits until at most the given number of calls are live.
func (s *trial) awaitLive(t *testing.T, live map[*phone]bool, most int) {
	t.Helper()
	err := kit.Until(t.Context(), kit.HangTimeout, fmt.Sprintf("at most %d calls", most), func() (bool, error) {
		if len(live) <= most {
			return true, nil
		}
		for p := range live {
			req, err := s.house.Request(t.Context(), p.request)
			if err != nil {
				return false, err
			}
			if req.Final() {
				p.finished = req
				delete(live, p)
			}
		}
		return len(live) <= most, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// killDialer kills the dialer that has the most connected phones.
func (s *trial) killDialer(t *testing.T) {
	t.Helper()
	var done dialerKill
	var socket string
	err := kit.Until(t.Context(), kit.HangTimeout, "a phone is connected", func() (bool, error) {
		connected, err := s.countConnected(t)
		if err != nil {
			return false, err
		}
		chosen, most := 0, 0
		for _, pid := range s.stack.Processes()["dialer"] {
			ports, err := udpPorts(pid, s.address)
			if err != nil {
				continue // the process ended before its socket was read
			}
			phones := 0
			for port, n := range connected {
				if ports[port] {
					phones += n
				}
			}
			if phones > most {
				chosen, most, done.ports = pid, phones, ports
			}
		}
		if chosen == 0 {
			return false, nil
		}
		socket = s.sipSocket(t, done.ports)
		done.at = time.Now()
		return true, syscall.Kill(chosen, syscall.SIGKILL)
	})
	if err != nil {
		t.Fatal(err)
	}
	for ; done.replaced.IsZero(); time.Sleep(2 * time.Millisecond) {
		switch now := s.sipSocket(t, done.ports); {
		case now != "" && now != socket:
			done.replaced = time.Now()
		case time.Since(done.at) > kit.HangTimeout:
			t.Fatalf("time until the killed dialer was replaced > %v", kit.HangTimeout)
		}
	}
	s.kills = append(s.kills, done)
}

var calledBy = regexp.MustCompile(`CALLED (\S+) BY [0-9.]+:([0-9]+)`)

// countConnected counts the connected phones by the SIP port of their dialer.
func (s *trial) countConnected(t *testing.T) (map[string]int, error) {
	t.Helper()
	show := exec.CommandContext(t.Context(), "sh", "-c", s.asterisk.Shell()+" -rx 'core show channels concise'")
	channels, err := show.Output()
	if err != nil {
		return nil, fmt.Errorf("list the channels of Asterisk: %w", err)
	}
	ports := map[string]string{}
	for _, call := range calledBy.FindAllStringSubmatch(terminalCodes.ReplaceAllString(s.asterisk.Output(), ""), -1) {
		ports[call[1]] = call[2]
	}
	connected := map[string]int{}
	for line := range strings.Lines(string(channels)) {
		const number, state = 2, 4
		if fields := strings.Split(line, "!"); len(fields) > state && fields[state] == "Up" {
			connected[ports[fields[number]]]++
		}
	}
	delete(connected, "")
	return connected, nil
}

// udpSockets maps the inode of each UDP socket at an IPv4 address of this machine to the socket's
// port.
func udpSockets(address string) (map[string]string, error) {
	table, err := os.ReadFile("/proc/self/net/udp")
	if err != nil {
		return nil, fmt.Errorf("read the sockets of the machine: %w", err)
	}
	ip := net.ParseIP(address).To4()
	local := fmt.Sprintf("%02X%02X%02X%02X", ip[3], ip[2], ip[1], ip[0])
	sockets := map[string]string{}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 10 {
			continue
		}
		at, port, _ := strings.Cut(fields[1], ":")
		if number, err := strconv.ParseUint(port, 16, 16); err == nil && at == local {
			sockets[fields[9]] = strconv.FormatUint(number, 10)
		}
	}
	return sockets, nil
}

func udpPorts(pid int, address string) (map[string]bool, error) {
	sockets, err := udpSockets(address)
	if err != nil {
		return nil, err
	}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return nil, fmt.Errorf("list the files of a process: %w", err)
	}
	ports := map[string]bool{}
	for _, file := range open {
		target, _ := os.Readlink(file) // the process can close the file before it is read
		inode := strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")
		if port, ok := sockets[inode]; ok {
			ports[port] = true
		}
	}
	return ports, nil
}

// sipSocket returns the inode of the SIP socket that has one of the ports. If no such socket is
// open, the result is "".
func (s *trial) sipSocket(t *testing.T, ports map[string]bool) string {
	t.Helper()
	sockets, err := udpSockets(s.address)
	if err != nil {
		t.Fatal(err)
	}
	for inode, port := range sockets {
		if (port == "5060" || port == "5061") && ports[port] {
			return inode
		}
	}
	return ""
}

func (s *trial) records(t *testing.T) map[string][]detailRecord {
	t.Helper()
	err := kit.Until(t.Context(), kit.HangTimeout, "Asterisk has no channels", func() (bool, error) {
		show := exec.CommandContext(t.Context(), "sh", "-c", s.asterisk.Shell()+" -rx 'core show channels count'")
		output, err := show.Output()
		return strings.Contains(string(output), "0 active channels"), err
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(s.dir, "log/cdr-custom/Master.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]detailRecord{}
	for _, row := range rows {
		found[row[0]] = append(found[row[0]], detailRecord{parseTime(row[1]), parseTime(row[2]), parseTime(row[3]), row[4]})
	}
	return found
}

// parseTime parses seconds since 1970. An empty text means that the event did not happen. The
// result is then the zero time.
func parseTime(text string) time.Time {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || seconds == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(seconds * 1e6))
}

func (s *trial) checkDialers(t *testing.T, records map[string][]detailRecord) {
	t.Helper()
	calls, connected := map[string]int{}, make([]int, len(s.kills))
	for _, of := range records {
		for _, r := range of {
			calls[r.dialer]++
			for i, k := range s.kills {
				if k.of(r) && !r.answer.IsZero() && r.answer.Before(k.at) && r.end.After(k.at) {
					connected[i]++
				}
			}
		}
	}
	placed := slices.Sorted(maps.Values(calls))
	if len(placed) < 2 || placed[len(placed)-2] < len(s.phones)/10 {
		t.Errorf("calls by dialer = %v, want at least two dialers with %d each", calls, len(s.phones)/10)
	}
	for i, got := range connected {
		if got == 0 {
			t.Errorf("phones that were connected to their dialer at kill %d = 0, want more", i+1)
		}
	}
	t.Logf("calls by dialer = %v, connected phones by kill = %v", calls, connected)
}

// checkEnd checks that the phone was called at most once, and that the call ended soon after its
// dialer was killed. The result is true if the dialer died before it had stored the call's end.
func (s *trial) checkEnd(t *testing.T, p *phone, records []detailRecord) (killed bool) {
	t.Helper()
	if len(records) > 1 {
		t.Errorf("%s: records of Asterisk = %d, want at most 1", p.number, len(records))
	}
	recovered := sharedstack.Value(p.finished.ErrorCode) == "dial_state_unknown"
	for _, k := range s.kills {
		for _, r := range records {
			if !k.of(r) {
				continue
			}
			killed = killed || recovered && k.at.Before(r.end.Add(maxStoreDelay))
			if r.end.Before(k.at) {
				continue
			}
			killed = true
			s.longest = max(s.longest, r.end.Sub(k.at))
			if got := r.end.Sub(k.at); got > maxOrphaned {
				t.Errorf("%s: connected after its dialer was killed = %v, want at most %v", p.number, got, maxOrphaned)
			}
		}
	}
	return killed
}
