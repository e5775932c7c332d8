package recordings_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/recordings"
)

type storage interface {
	Put(ctx context.Context, key, file string) error
	Delete(ctx context.Context, key string) error
}

func aFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, bytes.Repeat([]byte(text), 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkStorage tests a storage. readObject returns the content of the object with a key, and
// whether the object exists.
func checkStorage(t *testing.T, s storage, readObject func(key string) (string, bool)) {
	t.Helper()
	key, other := recordingstore.Key(
		uuid.New(),
		uuid.New(),
		time.Now(),
	), recordingstore.Key(
		uuid.New(),
		uuid.New(),
		time.Now(),
	)
	for _, text := range []string{"one", "two"} {
		if err := s.Put(t.Context(), key, aFile(t, text)); err != nil {
			t.Fatal(err)
		}
		switch got, found := readObject(key); {
		case !found:
			t.Error("found = false, want true")
		case len(got) != 300_000:
			t.Errorf("length of got = %v, want 300_000", len(got))
		case got[:3] != text:
			t.Errorf("got[:3] = %v, want %v", got[:3], text)
		}
	}
	if err := s.Put(t.Context(), other, aFile(t, "x")); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), key, "no such file"); err == nil {
		t.Error("Put of a missing file succeeded")
	}
	for range 2 { // deleting a missing object must not be an error
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if _, found := readObject(key); found {
		t.Error("the object exists after Delete")
	}
	if _, found := readObject(other); !found {
		t.Error("Delete deleted another object")
	}
}

func TestBucket_PutAndDeleteChangeTheObject(t *testing.T) {
	t.Parallel()
	server := testkit.New()
	defer server.Close()
	bucket, err := recordings.NewBucket(server.Storage())
	if err != nil {
		t.Fatal(err)
	}
	checkStorage(t, bucket, func(key string) (string, bool) {
		object, found := server.Objects()[key]
		if found && object.ContentType != recordingstore.ContentType {
			t.Errorf("content type = %s", object.ContentType)
		}
		return string(object.Body), found
	})
	server.Away(true)
	if err := bucket.Put(t.Context(), "x", aFile(t, "x")); err == nil {
		t.Error("Put succeeded while the storage is unreachable")
	}
	wrong := server.Storage()
	wrong.SecretKey = "another"
	unauthorized, err := recordings.NewBucket(wrong)
	if err != nil {
		t.Fatal(err)
	}
	server.Away(false)
	if err := unauthorized.Put(t.Context(), "x", aFile(t, "x")); err == nil {
		t.Error("Put with a wrong access key succeeded")
	}
}

func TestDirectory_PutAndDeleteChangeTheFile(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "kept")
	directory, err := recordings.NewDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	checkStorage(t, directory, func(key string) (string, bool) {
		file, err := directory.Open(key)
		if err != nil {
			return "", false
		}
		defer func() { _ = file.Close() }()
		body, err := io.ReadAll(file)
		return string(body), err == nil
	})
	if err := os.WriteFile(filepath.Join(root, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"secret", "../kept/secret", ""} {
		if _, err := directory.Open(key); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Open(%q) succeeded, want an error", key)
		}
	}
}
