// Package recordingstore defines the keys of recordings in the storage, the settings of the
// storage, and signed links to recordings in a local directory. Several services use it.
package recordingstore

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
)

// LinkLife is how long a link is valid (docs/reference/api/README.md).
const LinkLife = 3600 * time.Second

// ContentType is the media type of a recording.
const ContentType = "audio/wav"

// Key returns the key of a recording: workspace/yyyy/mm/dd/call_id.wav. The day is the day in UTC
// on which the recording began.
func Key(workspaceID, callID uuid.UUID, begun time.Time) string {
	return workspaceID.String() + begun.UTC().Format("/2006/01/02/") + callID.String() + ".wav"
}

// IsKey reports whether text has the form of a recording's key.
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

// Storage is where recordings are stored: a bucket of an S3-compatible storage, or a local
// directory of the dialer, whose files the gateway serves. If neither is set, calls are not
// recorded.
type Storage struct {
	// URL is the address of the storage that the services use. PublicURL is the address that
	// customers use: a link is signed for the host of PublicURL.
	URL       string `env:"RECORDINGS_S3_URL" help:"URL of the S3-compatible storage of recordings, for example https://s3.eu-central-1.amazonaws.com. If this variable and RECORDINGS_LINK_KEYS are empty, calls are not recorded."`
	PublicURL string `env:"RECORDINGS_S3_PUBLIC_URL" help:"URL of the same storage in the links that customers receive. If empty, RECORDINGS_S3_URL is used."`
	Region    string `env:"RECORDINGS_S3_REGION" envDefault:"us-east-1" help:"Region of the bucket."`
	Bucket    string `env:"RECORDINGS_S3_BUCKET" help:"Name of the bucket. The bucket must exist and be private."`
	AccessKey string `env:"RECORDINGS_S3_ACCESS_KEY" help:"Access key with permission to put, get and delete objects. It must be valid for more than an hour, because links to recordings are signed with it."`
	SecretKey string `env:"RECORDINGS_S3_SECRET_KEY" help:"Secret key of RECORDINGS_S3_ACCESS_KEY."`
	// LinkKeys and LinkURL are used only for a local directory.
	LinkKeys []string `env:"RECORDINGS_LINK_KEYS" envSeparator:"," help:"Keys that sign links to recordings in a local directory, each 32 bytes in base64. All services need the same keys. The first key signs, and all keys are accepted."`
	LinkURL  string   `env:"RECORDINGS_LINK_URL" help:"Public URL of the gateway in links to recordings in a local directory."`
}

// Location is the kind of storage in which recordings are stored.
type Location string

// The kinds of storage.
const (
	Nowhere Location = ""
	S3      Location = "s3"
	Local   Location = "local"
)

// Where returns the configured kind of storage. Its error lists all faults of the settings.
func (s Storage) Where() (Location, error) {
	switch {
	case s.URL != "" && len(s.LinkKeys) > 0:
		return Nowhere, errors.New("RECORDINGS_S3_URL and RECORDINGS_LINK_KEYS are both set: unset one, " +
			"because recordings are stored either in a bucket or in a local directory")
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

// Endpoint returns the host of a URL of the storage, and whether the URL uses TLS.
func Endpoint(text string) (host string, secure bool) {
	parsed, err := url.Parse(text)
	if err != nil {
		return "", false
	}
	return parsed.Host, parsed.Scheme == "https"
}
