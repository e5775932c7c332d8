package recordings_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"ringfence.dev/services/dialer/internal/recordings"
)

func TestHeader_IsDualChannelMuLaw(t *testing.T) {
	t.Parallel()
	// The expected fields follow "Multimedia Programming Interface and Data Specifications 1.0", which
	// requires a fmt chunk of 18 bytes for formats other than PCM.
	want := "52494646" + "72030000" + "57415645" + "666d7420" + "12000000" + "0700" + "0200" + "401f0000" + "803e0000" + "0200" + "0800" + "0000" +
		"66616374" + "04000000" + "a0010000" + "64617461" + "40030000"
	if got := hex.EncodeToString(recordings.Header(832)); got != want {
		t.Errorf("header\n%s, want\n%s", got, want)
	}
	switch {
	case len(recordings.Header(0)) != recordings.HeaderBytes:
		t.Errorf("length of wav.Header(0) is not %v", recordings.HeaderBytes)
	case !bytes.Equal(recordings.Header(833), recordings.Header(832)):
		t.Error("bytes.Equal(wav.Header(833), wav.Header(832)) = false, want true")
	case !bytes.Equal(recordings.Header(-1), recordings.Header(0)):
		t.Error("bytes.Equal(wav.Header(-1), wav.Header(0)) = false, want true")
	}
}

func TestAppend_PersonIsTheLeftChannelAndAgentIsTheRight(t *testing.T) {
	t.Parallel()
	if got := recordings.Append([]byte{9}, []byte{1, 2}, []byte{3, 4}); !bytes.Equal(got, []byte{9, 1, 3, 2, 4}) {
		t.Errorf("%v", got)
	}
}
