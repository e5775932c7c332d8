package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Home is the folder with the data of the local stack.
type Home struct {
	Dir  string
	lock *os.File
}

// minFreeBytes is the free space, in bytes, that a start needs for the database, its write-ahead
// log and the segments of the broker.
const minFreeBytes = 400 << 20

// FindHome returns the absolute path of the folder that RINGFENCE_HOME names, by default
// .ringfence. The folder need not exist.
func FindHome() (string, error) {
	dir := os.Getenv("RINGFENCE_HOME")
	if dir == "" {
		dir = ".ringfence"
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", dir, err)
	}
	return dir, nil
}

// MakeHome creates the folder if it does not exist and returns its absolute path.
func MakeHome() (string, error) {
	dir, err := FindHome()
	if err != nil {
		return "", err
	}
	// Files with keys have mode 0600. The folder has mode 0755, because the account of the database
	// must be able to enter it.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("%s cannot be created (%w): set RINGFENCE_HOME to a directory that you can write", dir,
			errors.Unwrap(err))
	}
	return dir, nil
}

// OpenHome creates the home and locks it, because only one stack can use it.
func OpenHome() (*Home, error) {
	dir, err := MakeHome()
	if err != nil {
		return nil, err
	}
	if err := CheckRoom(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "lock")
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%s belongs to another user: run as that user, or set RINGFENCE_HOME to a directory of your own", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		_ = lock.Close()
		return nil, fmt.Errorf("a stack is already running in %s (pid %s): stop it with Ctrl-C, or start this one with "+
			"its own RINGFENCE_HOME, RINGFENCE_PORT and RINGFENCE_ADMIN_PORT",
			dir, strings.TrimSpace(string(holder)))
	}
	if err := lock.Truncate(0); err != nil {
		return nil, fmt.Errorf("write lock: %w", err)
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return nil, fmt.Errorf("write lock: %w", err)
	}
	return &Home{Dir: dir, lock: lock}, nil
}

// Path returns the path of a file or folder in the home.
func (h *Home) Path(name string) string { return filepath.Join(h.Dir, name) }

// Close releases the lock.
func (h *Home) Close() error { return h.lock.Close() }

// CheckRoom returns an error if the file system of dir has less than minFreeBytes of free space. It
// returns nil if the free space is unknown.
func CheckRoom(dir string) error {
	free := FreeSpace(dir)
	if free >= 0 && free < minFreeBytes {
		return fmt.Errorf("only %d MB are free on the disk under %s: free at least %d MB, "+
			"or set RINGFENCE_HOME to a directory on another disk", free>>20, dir, minFreeBytes>>20)
	}
	return nil
}

// FreeSpace returns the number of bytes that an unprivileged user can write to the file system of
// dir, or -1 if it is unknown.
func FreeSpace(dir string) int64 {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return -1
	}
	return int64(disk.Bavail * uint64(disk.Bsize))
}

// WriteFile replaces a file atomically: after a crash the file has either the old or the new
// content.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	half := path + ".half"
	file, err := os.OpenFile(half, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(half, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("sync directory of %s: %w", path, err)
	}
	defer dir.Close()
	return dir.Sync()
}
