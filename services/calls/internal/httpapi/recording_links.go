// Package linking makes the links by which customers fetch recordings, out of the storage's settings alone: nobody is asked, and nothing is fetched. What lies in the storage
// is the dialer's.

package httpapi

import (
	"context"
	"fmt"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"ringfence.dev/libs/recordingstore"
)

// RecordingLinks makes them.
type RecordingLinks struct {
	local  *recordingstore.Links
	bucket string
	s3     *minio.Client
}

// NewRecordingLinks makes links into the storage; nil when there is none.
func NewRecordingLinks(s recordingstore.Storage) (*RecordingLinks, error) {
	where, err := s.Where()
	if err != nil || where == recordingstore.Nowhere {
		return nil, err
	}
	if where == recordingstore.Local {
		local, err := recordingstore.NewLinks(s)
		if err == nil && s.LinkURL == "" {
			err = fmt.Errorf("RECORDINGS_LINK_URL is empty: it is the gateway's public address, which links to recordings lead to")
		}
		return &RecordingLinks{local: local}, err
	}
	address := s.PublicURL // the host is part of what is signed
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

// Link leads to the recording of the key for recording.LinkLife, whoever has it.
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
