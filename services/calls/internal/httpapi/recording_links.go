package httpapi

import (
	"context"
	"fmt"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"ringfence.dev/libs/recordingstore"
)

// RecordingLinks signs the URLs of recordings. It uses only the settings of the object storage and
// sends no request to the storage.
type RecordingLinks struct {
	local  *recordingstore.Links
	bucket string
	s3     *minio.Client
}

// NewRecordingLinks returns the links of the configured object storage, or nil if no object storage
// is configured.
func NewRecordingLinks(s recordingstore.Storage) (*RecordingLinks, error) {
	where, err := s.Where()
	if err != nil || where == recordingstore.Nowhere {
		return nil, err
	}
	if where == recordingstore.Local {
		local, err := recordingstore.NewLinks(s)
		if err == nil && s.LinkURL == "" {
			err = fmt.Errorf("RECORDINGS_LINK_URL is empty: set it to the public URL of the gateway, for links to recordings")
		}
		return &RecordingLinks{local: local}, err
	}
	// the signature includes the host, so the link must be signed for the public address
	address := s.PublicURL
	if address == "" {
		address = s.URL
	}
	host, secure := recordingstore.Endpoint(address)
	client, err := minio.New(host, &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Secure: secure, Region: s.Region, BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		return nil, fmt.Errorf("read the storage of recordings: %w", err)
	}
	return &RecordingLinks{bucket: s.Bucket, s3: client}, nil
}

// Link returns a URL of the recording with this key. The URL is valid for recordingstore.LinkLife.
// Every client that has the URL can read the recording.
func (l *RecordingLinks) Link(ctx context.Context, key string) (string, error) {
	if l.local != nil {
		return l.local.Sign(key, time.Now()), nil
	}
	link, err := l.s3.PresignedGetObject(ctx, l.bucket, key, recordingstore.LinkLife, nil)
	if err != nil {
		return "", fmt.Errorf("sign a link to %s: %w", key, err)
	}
	return link.String(), nil
}
