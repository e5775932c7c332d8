package trunks

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/testkit"
)

func change(t testing.TB, tr *Trunk, text string) error {
	t.Helper()
	var body map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		t.Fatal(err)
	}
	return tr.Change(body)
}

func made(t *testing.T, text string) Trunk {
	t.Helper()
	tr := New(uuid.Nil)
	if err := change(t, &tr, text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return tr
}

func TestChange_ErrorNamesTheField(t *testing.T) {
	t.Parallel()
	for field, rows := range map[string][]string{
		"name":             {`{"host":"a"}`, `{"host":"a","name":" "}`, `{"host":"a","name":"a\u0000"}`, `{"host":"a","name":7}`, `{"host":"a","name":"` + strings.Repeat("x", 201) + `"}`},
		"host":             {`{"name":"a"}`, `{"name":"a","host":"sip:a"}`, `{"name":"a","host":"a:5060"}`, `{"name":"a","host":"a b"}`, `{"name":"a","host":"-a"}`, `{"name":"a","host":"fe80::1%eth0"}`, `{"name":"a","host":"a\r\nX: y"}`},
		"port":             {`{"name":"a","host":"a","port":0}`, `{"name":"a","host":"a","port":65536}`, `{"name":"a","host":"a","port":"5060"}`, `{"name":"a","host":"a","port":1.5}`},
		"transport":        {`{"name":"a","host":"a","transport":"ws"}`},
		"outbound_proxy":   {`{"name":"a","host":"a","outbound_proxy":"b:x"}`, `{"name":"a","host":"a","outbound_proxy":"b:0"}`, `{"name":"a","host":"a","outbound_proxy":"sip:b"}`},
		"ca_certificates":  {`{"name":"a","host":"a","ca_certificates":"none"}`},
		"username":         {`{"name":"a","host":"a","password":"x"}`, `{"name":"a","host":"a","register":true}`, `{"name":"a","host":"a","username":"a\"b"}`, `{"name":"a","host":"a","username":"a>b"}`},
		"password":         {`{"name":"a","host":"a","username":"u","password":"x\r\ny"}`},
		"register":         {`{"name":"a","host":"a","register":"yes"}`},
		"caller_ids":       {`{"name":"a","host":"a","caller_ids":["5"]}`, `{"name":"a","host":"a","caller_ids":"+14155550100"}`},
		"caller_id_header": {`{"name":"a","host":"a","caller_id_header":"rpid"}`},
		"number_format":    {`{"name":"a","host":"a","number_format":"e164"}`},
		"number_prefix":    {`{"name":"a","host":"a","number_prefix":"00"}`, `{"name":"a","host":"a","number_format":"prefix"}`, `{"name":"a","host":"a","number_format":"prefix","number_prefix":"0;x"}`},
		"codecs":           {`{"name":"a","host":"a","codecs":[]}`, `{"name":"a","host":"a","codecs":["opus"]}`, `{"name":"a","host":"a","codecs":["pcmu","pcmu"]}`},
		"srtp":             {`{"name":"a","host":"a","srtp":true}`, `{"name":"a","host":"a","srtp":"required"}`, `{"name":"a","host":"a","srtp":"required","transport":"tcp"}`},
		"session_seconds":  {`{"name":"a","host":"a","session_seconds":89}`, `{"name":"a","host":"a","session_seconds":-1}`},
		"channels":         {`{"name":"a","host":"a","channels":0}`},
		"calls_per_second": {`{"name":"a","host":"a","calls_per_second":0}`},
		"priority":         {`{"name":"a","host":"a","priority":-1}`},
		"inbound_sources":  {`{"name":"a","host":"a","inbound_sources":["0.0.0.0/0"]}`, `{"name":"a","host":"a","inbound_sources":["192.0.2.7/24"]}`, `{"name":"a","host":"a","inbound_sources":["sip.example.net"]}`},
		"status":           {`{"name":"a","host":"a","status":"down"}`},
	} {
		for _, body := range rows {
			tr, refusal := New(uuid.Nil), &apierr.Error{}
			switch err := change(t, &tr, body); {
			case !errors.As(err, &refusal):
				t.Errorf("%s: errors.As(err, &refusal) = false, want true", body)
			case refusal.Code != "validation_error":
				t.Errorf(`%s: refusal.Code = %v, want "validation_error"`, body, refusal.Code)
			case !strings.HasPrefix(refusal.Message, field+" "):
				t.Errorf("%s: refusal.Message = %q, want it to begin with %q", body, refusal.Message, field+" ")
			}
		}
	}
}

func TestChange_AcceptsOnlyCertificates(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil)
	server.Close()
	block := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	certificate := block("CERTIFICATE", server.Certificate().Raw)
	for text, good := range map[string]bool{
		"": true, certificate: true, certificate + "\n" + certificate: true,
		certificate + block("PRIVATE KEY", []byte("x")): false, certificate + "\x00": false, "ours:\n" + certificate: false, certificate + block("CERTIFICATE", []byte("x")): false,
	} {
		body, err := json.Marshal(map[string]string{"name": "a", "host": "h", "ca_certificates": text})
		if err != nil {
			t.Fatal(err)
		}
		tr := New(uuid.Nil)
		if err := change(t, &tr, string(body)); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestChange_NullRestoresTheDefaultOfAField(t *testing.T) {
	t.Parallel()
	tr := made(t, `{"name":"a","host":"[2001:db8::1]","transport":"tls","channels":40,"username":"u","password":"p"}`)
	if got := tr.SIPPort(); got != 5061 {
		t.Errorf("trunk: tr.SIPPort() = %v, want 5061", got)
	} else if tr.Version != 1 {
		t.Errorf("trunk: tr.Version = %v, want 1", tr.Version)
	}
	switch err := change(t, &tr, `{"channels":null,"transport":null,"unknown":1}`); {
	case err != nil:
		t.Errorf("change: %v", err)
	case tr.Channels != 10:
		t.Errorf("tr.Channels = %v, want 10", tr.Channels)
	case tr.SIPPort() != 5060:
		t.Errorf("tr.SIPPort() = %v, want 5060", tr.SIPPort())
	case tr.Password != "p":
		t.Errorf(`tr.Password = %v, want "p"`, tr.Password)
	case tr.Version != 2:
		t.Errorf("tr.Version = %v, want 2", tr.Version)
	}
}

func TestAddress_ReturnsTheProxyOrTheHost(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"name":"a","host":"h"}`:                                                    "h 5060",
		`{"name":"a","host":"h","port":5070}`:                                        "h 5070",
		`{"name":"a","host":"h","outbound_proxy":"p"}`:                               "p 5060",
		`{"name":"a","host":"h","transport":"tls","outbound_proxy":"p"}`:             "p 5061",
		`{"name":"a","host":"h","outbound_proxy":"p:5080"}`:                          "p 5080",
		`{"name":"a","host":"h","outbound_proxy":"[2001:db8::1]:5080"}`:              "2001:db8::1 5080",
		`{"name":"a","host":"h","outbound_proxy":"2001:db8::1"}`:                     "2001:db8::1 5060",
		`{"name":"a","host":"h","outbound_proxy":"[2001:db8::1]","transport":"tls"}`: "2001:db8::1 5061",
	} {
		host, port := made(t, body).Address()
		if got := host + " " + json.Number(itoa(port)).String(); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

func itoa(n uint16) string {
	text, _ := json.Marshal(n)
	return string(text)
}

func TestTrunk_ConvertsNumbersToAndFromItsNumberFormat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		settings, written string
		read              map[string]string
	}{
		{settings: `{"name":"a","host":"h"}`, written: "+14155550100", read: map[string]string{
			"+14155550100": "+14155550100", "14155550100": "+14155550100", "+14155550100;phone-context=x": "+14155550100", "anonymous": "", "": "", "+1": "", "0014155550100": "",
		}},
		{settings: `{"name":"a","host":"h","number_format":"digits"}`, written: "14155550100",
			read: map[string]string{"14155550100": "+14155550100", "+14155550100": "+14155550100", "1415555O100": ""}},
		{settings: `{"name":"a","host":"h","number_format":"prefix","number_prefix":"00"}`,
			written: "0014155550100", read: map[string]string{
				"0014155550100": "+14155550100", "+14155550100": "+14155550100", "14155550100": "", "00": "",
				"00" + strings.Repeat("1", 16): "",
			}},
	} {
		tr := made(t, tt.settings)
		if got := tr.Write("+14155550100"); got != tt.written {
			t.Errorf("%s: written %s, want %s", tt.settings, got, tt.written)
		}
		for user, want := range tt.read {
			if got, ok := tr.Read(user); got != want {
				t.Errorf("%s: got = %v, want %v; user = %q", tt.settings, got, want, user)
			} else if ok != (want != "") {
				t.Errorf("%s: ok = %v, want %v; user = %q", tt.settings, ok, want != "", user)
			}
		}
	}
}

func TestCallerID_ReturnsANumberOfTheTrunk(t *testing.T) {
	t.Parallel()
	anyone, some := made(t, `{"name":"a","host":"h"}`), made(t, `{"name":"a","host":"h","caller_ids":["+14155550100","+14155550101"]}`)
	for _, tt := range []struct {
		trunk        Trunk
		wanted, want string
	}{
		{
			trunk: anyone, wanted: "+442079460000", want: "+442079460000"}, {trunk: some,
			wanted: "+14155550101", want: "+14155550101"}, {trunk: some, wanted: "+442079460000",
			want: "+14155550100",
		},
	} {
		if got := tt.trunk.CallerID(tt.wanted); got != tt.want {
			t.Errorf("CallerID(%s) = %s, want %s", tt.wanted, got, tt.want)
		}
	}
}

func TestTrunk_AdmitsOnlyItsOwnAddresses(t *testing.T) {
	t.Parallel()
	tr := made(t, `{"name":"a","host":"192.0.2.1","inbound_sources":["198.51.100.0/24","2001:db8::7"]}`)
	for source, want := range map[string]bool{
		"192.0.2.1": true, "::ffff:192.0.2.1": true, "192.0.2.2": false, "198.51.100.255": true, "198.51.101.0": false, "2001:db8::7": true, "2001:db8::8": false,
	} {
		if got := tr.Admits(netip.MustParseAddr(source)); got != want {
			t.Errorf("Admits(%s) = %v", source, got)
		}
	}
}

// After each body that Change accepts, the trunk must have an address, and Read must be the
// inverse of Write.
func FuzzChange(f *testing.F) {
	good := `{"name":"a","host":"192.0.2.1","port":5070,"transport":"tls","outbound_proxy":"p:5061","username":"u","password":"p","register":true,"caller_ids":["+14155550100"],
		"number_format":"prefix","number_prefix":"00","codecs":["pcma"],"srtp":"optional","session_seconds":90,"channels":3,"inbound_sources":["192.0.2.0/24"]}`
	for _, body := range append(testkit.Mutations(good), good) {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var body map[string]json.RawMessage
		tr := New(uuid.Nil)
		if json.Unmarshal(raw, &body) != nil || tr.Change(body) != nil {
			return
		}
		const number = "+442079460000"
		if got, ok := tr.Read(tr.Write(number)); !ok {
			t.Errorf("Read: ok = false, want true; tr = %+v; tr.Write(number) = %q", tr, tr.Write(number))
		} else if got != number {
			t.Errorf("Read: got = %v, want %v; tr = %+v; tr.Write(number) = %q", got, number, tr, tr.Write(number))
		}
		if host, port := tr.Address(); host == "" {
			t.Errorf("Address: host is empty, want a value; tr = %+v", tr)
		} else if port == 0 {
			t.Errorf("Address: port = 0, want more; tr = %+v", tr)
		}
	})
}
