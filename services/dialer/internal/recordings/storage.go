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

// Bucket stores recordings in a bucket of S3-compatible storage.
type Bucket struct {
	client *minio.Client
	name   string
}

// NewBucket returns the configured bucket. The SSRF guard does not check its host, because the
// operator configures it.
func NewBucket(s recordingstore.Storage) (*Bucket, error) {
	host, secure := recordingstore.Endpoint(s.URL)
	client, err := minio.New(host, &minio.Options{
		Creds: credentials.NewStaticV4(
			s.AccessKey,
			s.SecretKey,
			"",
		), Secure: secure, Region: s.Region, BucketLookup: minio.BucketLookupPath,
		MaxRetries: 1, // the caller repeats failed uploads
	})
	if err != nil {
		return nil, fmt.Errorf("read the storage of recordings: %w", err)
	}
	return &Bucket{client: client, name: s.Bucket}, nil
}

// Put uploads a file. It replaces an existing object.
func (b *Bucket) Put(ctx context.Context, key, file string) error {
	if _, err := b.client.FPutObject(ctx, b.name, key, file, minio.PutObjectOptions{ContentType: recordingstore.ContentType}); err != nil {
		return fmt.Errorf("put %s into the storage: %w", key, err)
	}
	return nil
}

// Delete deletes an object. It is not an error if the object does not exist.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := b.client.RemoveObject(ctx, b.name, key, minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("delete %s from the storage: %w", key, err)
	}
	return nil
}

// Directory stores recordings in a local directory.
type Directory struct{ root string }

// NewDirectory returns a storage whose objects are files below root. It creates root if it does not
// exist.
func NewDirectory(root string) (*Directory, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of recordings: %w", err)
	}
	return &Directory{root: filepath.Clean(root)}, nil
}

// Put copies a file. It replaces an existing file. A concurrent reader of the key never sees an
// incomplete file.
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

// Delete deletes a file, and all directories that are empty after that. It is not an error if the
// file does not exist.
func (d *Directory) Delete(_ context.Context, key string) error {
	path := filepath.Join(d.root, filepath.FromSlash(key))
	for _, name := range []string{path, path + ".part"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("delete %s from the directory of recordings: %w", key, err)
		}
	}
	dir := filepath.Dir(path)
	for len(dir) > len(d.root) && os.Remove(dir) == nil { // ends at the first directory that is not empty
		dir = filepath.Dir(dir)
	}
	return nil
}

// Open opens a file. It returns os.ErrNotExist if the key is unknown or invalid.
func (d *Directory) Open(key string) (*os.File, error) {
	if !recordingstore.IsKey(key) {
		return nil, os.ErrNotExist
	}
	return os.Open(filepath.Join(d.root, filepath.FromSlash(key)))
}
