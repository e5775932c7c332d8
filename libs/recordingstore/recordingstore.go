// Package recordingstore owns what services must agree on about the recordings of calls: the name under which one lies in the operator's storage, where that is, and the links
// to one in a local directory, which end. Who writes, keeps and serves them is the services' own.
package recordingstore

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
)

// LinkLife is how long a link is good for (specification, Limits).
const LinkLife = 3600 * time.Second

// ContentType of a recording.
const ContentType = "audio/wav"

// Key is the name of a call's recording that began at the instant: workspace/yyyy/mm/dd/call_id.wav, the day in UTC.
func Key(workspaceID, callID uuid.UUID, begun time.Time) string {
	return workspaceID.String() + begun.UTC().Format("/2006/01/02/") + callID.String() + ".wav"
}

// IsKey says whether a text is a name that Key may have made; no other is looked for.
func IsKey(text string) bool {
	parts := strings.Split(text, "/")
	if len(parts) != 5 {
		return false
	}
	name, wav := strings.CutSuffix(parts[4], ".wav")
	workspaceID, err := uuid.Parse(parts[0])
	callID, fault := uuid.Parse(name)
	day, wrong := time.Parse("2006/01/02", strings.Join(parts[1:4], "/"))
	return wav && err == nil && fault == nil && wrong == nil && Key(workspaceID, callID, day) == text
}

// Storage is the operator's, out of the environment: a bucket of an S3-compatible storage, or a local directory of the dialer's, which the gateway's address leads to. Neither:
// no call is recorded.
type Storage struct {
	// URL is how we reach it, PublicURL how customers do; a link is signed for its host.
	URL       string `env:"RECORDINGS_S3_URL" help:"S3-compatible storage for recordings, like https://s3.eu-central-1.amazonaws.com"`
	PublicURL string `env:"RECORDINGS_S3_PUBLIC_URL" help:"the same storage as customers reach it, which links lead to; empty: RECORDINGS_S3_URL"`
	Region    string `env:"RECORDINGS_S3_REGION" envDefault:"us-east-1" help:"its region"`
	Bucket    string `env:"RECORDINGS_S3_BUCKET" help:"the bucket, which must exist and be private"`
	AccessKey string `env:"RECORDINGS_S3_ACCESS_KEY" help:"access key that may put, get and delete objects in it, and outlives an hour"`
	SecretKey string `env:"RECORDINGS_S3_SECRET_KEY" help:"its secret key"`
	// LinkKeys and LinkURL are of a local directory.
	LinkKeys []string `env:"RECORDINGS_LINK_KEYS" envSeparator:"," help:"for recordings in a local directory: base64 of 32 bytes under which links are signed, the same here and there; the first signs, all count"`
	LinkURL  string   `env:"RECORDINGS_LINK_URL" help:"for recordings in a local directory: the gateway's public address, which links lead to"`
}

// Where recordings lie.
type Where string

// Places.
const (
	Nowhere Where = ""
	S3      Where = "s3"
	Local   Where = "local"
)

// Where says which storage was chosen. An error lists what is wrong with the settings.
func (s Storage) Where() (Where, error) {
	switch {
	case s.URL != "" && len(s.LinkKeys) > 0:
		return Nowhere, errors.New("RECORDINGS_S3_URL and RECORDINGS_LINK_KEYS are both set: recordings lie in a bucket or in a local directory")
	case s.URL == "" && len(s.LinkKeys) == 0:
		return Nowhere, nil
	case s.URL == "":
		return Local, nil
	}
	var faults []error
	for name, text := range map[string]string{"RECORDINGS_S3_URL": s.URL, "RECORDINGS_S3_PUBLIC_URL": s.PublicURL} {
		if text == "" {
			continue
		}
		if parsed, err := url.Parse(text); err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" || strings.Trim(parsed.Path, "/") != "" {
			faults = append(faults, errors.New(name+" must be like https://s3.example.com"))
		}
	}
	if s.Bucket == "" || s.AccessKey == "" || s.SecretKey == "" {
		faults = append(faults, errors.New("RECORDINGS_S3_URL needs RECORDINGS_S3_BUCKET, RECORDINGS_S3_ACCESS_KEY and RECORDINGS_S3_SECRET_KEY"))
	}
	return S3, errors.Join(faults...)
}

// Endpoint is the host of one of the storage's URLs, and whether it is spoken to over TLS.
func Endpoint(text string) (host string, secure bool) {
	parsed, err := url.Parse(text)
	if err != nil {
		return "", false
	}
	return parsed.Host, parsed.Scheme == "https"
}
