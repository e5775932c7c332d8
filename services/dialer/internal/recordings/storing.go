// Package storing brings recordings to where the operator keeps them, an S3-compatible bucket or a local directory, and takes them away again. What a recording is, and when it goes, it
// does not know.

package recordings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"ringfence.dev/libs/recordingstore"
)

// Bucket is one of an S3-compatible storage.
type Bucket struct {
	client *minio.Client
	name   string
}

// NewBucket reaches the storage of the settings, whose host is the operator's own and goes round the guard.
func NewBucket(s recordingstore.Storage) (*Bucket, error) {
	host, secure := recordingstore.Endpoint(s.URL)
	client, err := minio.New(host, &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Secure: secure, Region: s.Region, BucketLookup: minio.BucketLookupPath,
		MaxRetries: 1, // who asks tries again by himself
	})
	if err != nil {
		return nil, fmt.Errorf("read the storage of recordings: %w", err)
	}
	return &Bucket{client: client, name: s.Bucket}, nil
}

// Put brings a file there under the key; again, it takes its place.
func (b *Bucket) Put(ctx context.Context, key, file string) error {
	if _, err := b.client.FPutObject(ctx, b.name, key, file, minio.PutObjectOptions{ContentType: recordingstore.ContentType}); err != nil {
		return fmt.Errorf("put %s into the storage: %w", key, err)
	}
	return nil
}

// Delete takes an object away; one that is not there is no fault.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := b.client.RemoveObject(ctx, b.name, key, minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("delete %s from the storage: %w", key, err)
	}
	return nil
}

// Directory is a local one.
type Directory struct{ root string }

// NewDirectory keeps objects as files below root, which is made.
func NewDirectory(root string) (*Directory, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of recordings: %w", err)
	}
	return &Directory{root: filepath.Clean(root)}, nil
}

// Put brings a file there under the key; again, it takes its place. Whoever looks finds all of it, or nothing.
func (d *Directory) Put(_ context.Context, key, file string) error {
	to := filepath.Join(d.root, filepath.FromSlash(key))
	err := os.MkdirAll(filepath.Dir(to), 0o700)
	if err == nil {
		err = copyFile(to+".part", file)
	}
	if err == nil {
		err = os.Rename(to+".part", to)
	}
	if err != nil {
		return fmt.Errorf("put %s into the directory of recordings: %w", key, err)
	}
	return nil
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// Delete takes a file away, and the directories of its day that are empty then; one that is not there is no fault.
func (d *Directory) Delete(_ context.Context, key string) error {
	path := filepath.Join(d.root, filepath.FromSlash(key))
	for _, name := range []string{path, path + ".part"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("delete %s from the directory of recordings: %w", key, err)
		}
	}
	dir := filepath.Dir(path)
	for len(dir) > len(d.root) && os.Remove(dir) == nil { // up to one that holds another's
		dir = filepath.Dir(dir)
	}
	return nil
}

// Open is a file there; os.ErrNotExist.
func (d *Directory) Open(key string) (*os.File, error) {
	if !recordingstore.IsKey(key) {
		return nil, os.ErrNotExist
	}
	return os.Open(filepath.Join(d.root, filepath.FromSlash(key)))
}
