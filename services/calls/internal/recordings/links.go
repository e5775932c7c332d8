// Package recordings signs the links to the recordings of calls.
package recordings

import (
	"context"
	"fmt"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"ringfence.dev/libs/recordingstore"
)

// Links signs the URLs of recordings. It computes a URL from the settings of the object
// storage and sends no request to the storage.
type Links struct {
	local  *recordingstore.Links
	bucket string
	s3     *minio.Client
}

// NewLinks returns nil if no object storage is configured.
func NewLinks(s recordingstore.Storage) (*Links, error) {
	where, err := s.Where()
	if err != nil || where == recordingstore.Nowhere {
		return nil, err
	}
	if where == recordingstore.Local {
		local, err := recordingstore.NewLinks(s)
		if err == nil && s.LinkURL == "" {
			err = fmt.Errorf("RECORDINGS_LINK_URL is empty: set it to the public URL of the gateway, for links to recordings")
		}
		return &Links{local: local}, err
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
	return &Links{bucket: s.Bucket, s3: client}, nil
}

// Link returns a URL of the recording with this key. The URL is valid for recordingstore.LinkLife.
// Every client that has the URL can read the recording.
func (l *Links) Link(ctx context.Context, key string) (string, error) {
	if l.local != nil {
		return l.local.Sign(key, time.Now()), nil
	}
	link, err := l.s3.PresignedGetObject(ctx, l.bucket, key, recordingstore.LinkLife, nil)
	if err != nil {
		return "", fmt.Errorf("sign a link to %s: %w", key, err)
	}
	return link.String(), nil
}
